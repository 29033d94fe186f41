// Reads so many events of an address with the client that most pages use, and says on a line each what it heard.
import { EventSource } from 'eventsource'

const [url, count] = process.argv.slice(2)
let heard = 0
const source = new EventSource(url)
const say = what => console.log(JSON.stringify(what))
const take = event => {
  heard += 1
  say({ id: event.lastEventId, type: event.type, n: JSON.parse(event.data).context?.n })
  if (heard === Number(count)) source.close()
}
for (const type of ['breadcrumb.created', 'breadcrumb.updated', 'breadcrumb.deleted']) source.addEventListener(type, take)
source.addEventListener('open', () => say({ open: true }))
source.addEventListener('error', event => say({ error: event.code ?? 0, closed: source.readyState === EventSource.CLOSED }))
