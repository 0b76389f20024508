import sqlite3
import time
from pathlib import Path

DAY = 86_400
now = int(time.time())
Path("shop.db").unlink(missing_ok=True)  # made afresh each time
shop = sqlite3.connect("shop.db")
shop.executescript("""
    CREATE TABLE jobs (id INTEGER PRIMARY KEY, status TEXT NOT NULL, finished_at TEXT);
    CREATE TABLE job_attempts (id INTEGER PRIMARY KEY, job_id INTEGER NOT NULL REFERENCES jobs (id));
    CREATE INDEX job_attempts_job ON job_attempts (job_id);
    CREATE TABLE sessions (token TEXT PRIMARY KEY, expires_at_ms INTEGER NOT NULL);
    CREATE TABLE settings (id INTEGER PRIMARY KEY CHECK (id = 1), currency TEXT NOT NULL);
    INSERT INTO settings VALUES (1, 'EUR');
""")


def text(seconds):
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


for n in range(3000):  # a month of jobs: one in ten failed, two still run, five lost their time
    status = "failed" if n % 10 == 0 else "running" if n in (1, 2) else "done"
    finished = None if status == "running" or n % 600 == 7 else text(now - 30 * DAY + n * DAY // 100)
    shop.execute("INSERT INTO jobs VALUES (?, ?, ?)", (n, status, finished))
    shop.execute("INSERT INTO job_attempts (job_id) VALUES (?)", (n,))
for n in range(500):  # two sessions in five have expired, and three never got a time
    expires = 0 if n in (10, 20, 30) else (now + (n - 200) * 600 - 300) * 1000
    shop.execute("INSERT INTO sessions VALUES (?, ?)", (f"s{n}", expires))
shop.commit()
