// pg-boss through its own API: `pg-boss.cjs create|fill|clean|use URL`.
'use strict'

const { PgBoss, TestClock } = require('pg-boss')
const { connection } = require('./connection.cjs')

const DAY = 86_400_000
const MINUTE = 60_000
// Each queue has its own windows: seven days for ended jobs and fourteen for waiting ones by default; 0 is never.
const QUEUES = {
  mail: {},
  reports: { partition: true, deleteAfterSeconds: 86_400 },
  audit: { deleteAfterSeconds: 0 },
  slow: { deleteAfterSeconds: 30 * 86_400, retentionSeconds: 60 * 86_400 }
}
const SETTINGS = {
  supervise: false,
  schedule: false,
  reindex: false,
  monitorVacuum: false,
  persistWarnings: true,
  persistQueueStats: true,
  warningQueueSize: 1
}
const FILLING = { monitorIntervalSeconds: 1, queueStatRetentionDays: 365 }
const CLEANING = { monitorIntervalSeconds: 3600, maintenanceIntervalSeconds: 1, warningRetentionDays: 10 }

async function using (url, settings, action) {
  const boss = new PgBoss({ ...connection(url), ...SETTINGS, ...settings })
  boss.on('error', error => { throw error })
  await boss.start()
  try {
    await action(boss)
  } finally {
    await boss.stop({ graceful: false })
  }
}

async function createQueues (boss) {
  for (const [name, options] of Object.entries(QUEUES)) await boss.createQueue(name, options)
  await boss.schedule('mail', '0 3 * * *')
  await boss.subscribe('signed-up', 'mail')
}

async function one (boss, name, options) {
  await boss.send(name, { n: 1 }, { retryLimit: 0, priority: 9, ...options })
  const [job] = await boss.fetch(name)
  return job.id
}

// One job in each state, and some with windows of their own.
async function jobsOfADay (boss, name) {
  await boss.complete(name, await one(boss, name))
  await boss.complete(name, await one(boss, name, { deleteAfterSeconds: 12 * 86_400 }))
  await boss.complete(name, await one(boss, name, { deleteAfterSeconds: 0 }))
  await boss.fail(name, await one(boss, name))
  await boss.fail(name, await one(boss, name, { retryLimit: 2, retryDelay: 365 * 86_400 }))
  await boss.cancel(name, await one(boss, name))
  await one(boss, name)
  await boss.send(name, { n: 2 }, { startAfter: 3600 })
  await boss.send(name, { n: 3 }, { startAfter: 3600, retentionSeconds: 3 * 86_400 })
}

async function dependentJobs (boss, clock, begin) {
  const ids = await boss.flow([
    { ref: 'parent', name: 'mail', options: { priority: 9 } },
    { ref: 'child', name: 'slow', options: { priority: 9 }, dependsOn: ['parent'] }
  ])
  await boss.fetch('mail')
  await boss.complete('mail', ids.parent)
  await boss.resolveFlow()
  await clock.setTime(begin + 2 * MINUTE)
  await boss.fetch('slow')
  await boss.complete('slow', ids.child)
  return ids
}

// Four times a day, and at the end of the last day that is dropped as a whole. No job has ended by then, so that nothing
// is deleted meanwhile.
function snapshots (now) {
  const times = Array.from({ length: 49 }, (_, n) => now - n * DAY / 4 - 5 * MINUTE)
  return [...times, (Math.floor(now / DAY) - 7) * DAY - MINUTE].sort((a, b) => a - b)
}

async function fill (url) {
  const now = Date.now()
  const clock = new TestClock(now - 50 * DAY)
  await using(url, { ...FILLING, clock }, async boss => {
    await createQueues(boss)
    for (const name of ['mail', 'reports']) await boss.send(name, {}, { retentionSeconds: 90 * 86_400 })
    await boss.send('mail', {}, { retentionSeconds: 90 * 86_400 })
    for (const time of snapshots(now)) {
      await clock.setTime(time)
      await boss.supervise()
    }
    for (let day = 40; day >= 0; day--) {
      const begin = now - day * DAY - 5 * MINUTE
      await clock.setTime(begin)
      for (const name of Object.keys(QUEUES)) await jobsOfADay(boss, name)
      if (day % 4 !== 0) continue
      const ids = await dependentJobs(boss, clock, begin)
      // The dependency of a job that the application deletes stays behind.
      if (day === 4) await boss.deleteJob('slow', ids.child)
    }
  })
}

// The monitor is not what is compared: it ran a minute ago, and does not run again within an hour.
async function clean (url) {
  await using(url, CLEANING, boss => boss.supervise())
}

async function use (url) {
  await using(url, {}, async boss => {
    const drift = await boss.detectSchemaDrift()
    if (!drift.ok && drift.drift?.length) throw new Error(JSON.stringify(drift))
    const id = await boss.send('reports', { answer: 42 }, { priority: 99 })
    const [job] = await boss.fetch('reports')
    if (job.id !== id || job.data.answer !== 42) throw new Error('another job was fetched')
    await boss.complete('reports', id)
    await boss.supervise()
  })
}

const VERBS = { create: url => using(url, {}, async () => {}), fill, clean, use }
const [verb, url] = process.argv.slice(2)
VERBS[verb](url).catch(error => {
  console.error(error)
  process.exit(1)
})
