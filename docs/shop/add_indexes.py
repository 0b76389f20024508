import sqlite3

shop = sqlite3.connect("shop.db")
shop.execute('CREATE INDEX "jobs_status_finished_at_id_idx" ON "jobs" ("status", "finished_at", "id");')
shop.execute('CREATE INDEX "sessions_expires_at_ms_token_idx" ON "sessions" ("expires_at_ms", "token");')
