// graphile-worker through its own API: `graphile-worker.cjs create|fill|clean|use URL`.
'use strict'

const { Logger, makeWorkerUtils, runOnce } = require('graphile-worker')
const { Pool } = require('pg')
const { connection } = require('./connection.cjs')

const logger = new Logger(() => () => {})
const done = []
const taskList = {
  works: payload => { done.push(payload.n) },
  fails: () => { throw new Error('no') },
  once: () => {}
}

async function using (url, action) {
  const pgPool = new Pool(connection(url))
  const utils = await makeWorkerUtils({ pgPool, logger })
  try {
    await action(utils, pgPool)
  } finally {
    await utils.release()
    await pgPool.end()
  }
}

async function fill (url) {
  await using(url, async (utils, pgPool) => {
    for (let n = 0; n < 20; n++) {
      const queueName = n % 4 === 0 ? `queue-${n}` : undefined
      await utils.addJob('works', { n }, { queueName })
      await utils.addJob('fails', { n }, { queueName, maxAttempts: 1 })
      await utils.addJob('fails', { n }, { maxAttempts: 3 })
      await utils.addJob('works', { n }, { runAt: new Date(Date.now() + 86_400_000), jobKey: `later-${n}` })
    }
    await utils.addJob('once', {}, { queueName: 'gone' })
    await runOnce({ pgPool, logger, taskList })
    // What a worker leaves behind that is killed during the last attempt: a job that it has locked.
    await pgPool.query("UPDATE graphile_worker._private_jobs SET locked_at = now(), locked_by = 'killed'" +
      ' WHERE attempts = max_attempts AND id % 5 = 0')
    await pgPool.query("UPDATE graphile_worker._private_jobs SET updated_at = now() - interval '1 hour'")
  })
}

async function clean (url) {
  const tasks = ['DELETE_PERMAFAILED_JOBS', 'GC_TASK_IDENTIFIERS', 'GC_JOB_QUEUES']
  await using(url, utils => utils.cleanup({ tasks }))
}

async function use (url) {
  await using(url, async (utils, pgPool) => {
    await utils.migrate()
    await utils.addJob('works', { n: 42 }, { queueName: 'gone' })
    await runOnce({ pgPool, logger, taskList })
    if (!done.includes(42)) throw new Error('the job was not run')
  })
}

const VERBS = { create: url => using(url, utils => utils.migrate()), fill, clean, use }
const [verb, url] = process.argv.slice(2)
VERBS[verb](url).catch(error => {
  console.error(error)
  process.exit(1)
})
