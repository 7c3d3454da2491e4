// A crew (crew_test.go) of kafkajs: kafkajs.js ADDR TOPIC GROUP.
const { Kafka, logLevel } = require('kafkajs')
const [addr, topic, group] = process.argv.slice(2)
const kafka = new Kafka({
  brokers: [addr],
  retry: { initialRetryTime: 50, maxRetryTime: 1000, retries: 50 },
  logLevel: logLevel.INFO,
  logCreator: () => ({ label, log }) => console.error(label, log.message, log.error ?? ''),
})
const producer = kafka.producer({ allowAutoTopicCreation: false })
const members = new Map()

async function send(from, to) {
  const messages = []
  for (let i = from; i < to; i++) messages.push({ key: `${i}`, value: `${i}` })
  await producer.send({ topic, acks: -1, messages })
  console.log(`sent ${to}`)
}

function assigned(name, partitions) {
  console.log(`${name} assigned ${partitions.slice().sort((a, b) => a - b).join() || '-'}`)
}

async function join(name) {
  const consumer = kafka.consumer({ groupId: group, sessionTimeout: 10000, heartbeatInterval: 300, maxWaitTimeInMs: 50 })
  members.set(name, consumer)
  consumer.on(consumer.events.GROUP_JOIN, e => assigned(name, e.payload.memberAssignment[topic] ?? []))
  consumer.on(consumer.events.REBALANCING, () => assigned(name, []))
  consumer.on(consumer.events.CRASH, e => {
    console.error(name, 'crashed', e.payload.error)
    if (!e.payload.restart) process.exit(1)
  })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, resolveOffset }) => {
      for (const m of batch.messages) {
        console.log(`${name} record ${batch.partition} ${m.offset} ${m.value}`)
        resolveOffset(m.offset)
      }
      await consumer.commitOffsets([{ topic, partition: batch.partition, offset: `${BigInt(batch.lastOffset()) + 1n}` }])
    },
  })
}

async function leave(name) {
  const consumer = members.get(name)
  members.delete(name)
  await consumer.disconnect()
}

async function main() {
  await producer.connect()
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    const w = line.split(' ')
    switch (w[0]) {
      case 'send':
        await send(Number(w[1]), Number(w[2]))
        break
      case 'join':
        await join(w[1])
        break
      case 'leave':
        await leave(w[1])
        console.log(`${w[1]} left`)
        break
      default:
        throw new Error(`what is ${line}`)
    }
  }
  for (const name of [...members.keys()]) await leave(name)
  await producer.disconnect()
}

// A disconnected client may still hold timers and sockets of connections that failed: the end is said aloud.
main().then(() => process.exit(0), e => {
  console.error(e)
  process.exit(1)
})
