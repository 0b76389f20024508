// The parts of a PostgreSQL URL that names a socket's folder, as the driver of Node.js takes them.
'use strict'

exports.connection = function connection (url) {
  const { username, pathname, searchParams } = new URL(url.replace('@/', '@localhost/'))
  return {
    user: username,
    database: pathname.slice(1),
    host: searchParams.get('host') ?? 'localhost',
    port: Number(searchParams.get('port') ?? 5432)
  }
}
