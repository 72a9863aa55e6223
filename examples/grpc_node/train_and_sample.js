#!/usr/bin/env node
// Trains and samples over gRPC from Node, without stubs: the protos are read at run time.
//
//   lathe up --model NAME=PATH --grpc-listen 127.0.0.1:8090
//   cd examples/grpc_node && npm ci
//   node train_and_sample.js --address 127.0.0.1:8090 --api-key KEY
//
// Teaches a LoRA adapter to go round a ring of six token ids, then streams a sample from it, token
// by token. Ends with 1 when the sample does not follow the ring. `--ca FILE` speaks TLS, with
// `--cert` and `--key` it shows a client certificate too.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const { parseArgs } = require('node:util');
const grpc = require('@grpc/grpc-js');
const protoLoader = require('@grpc/proto-loader');

const ROOT = path.resolve(__dirname, '..', '..');
const RING = [11, 12, 13, 14, 15, 16];
// GetResult waits this long at the server; the call's own deadline is a little longer.
const WAIT_MS = 20000;

const { lathe } = grpc.loadPackageDefinition(
  protoLoader.loadSync(['protos/lathe/v1/engine.proto', 'protos/lathe/v1/streaming.proto'], {
    includeDirs: [ROOT],
    keepCase: true,
    longs: Number,
    enums: String,
    defaults: true,
    oneofs: true,
  }));

// Arrays travel as little-endian bytes.
function packed(values, write, size) {
  const bytes = Buffer.alloc(values.length * size);
  values.forEach((value, i) => write.call(bytes, value, i * size));
  return bytes;
}
const int32s = (values) => packed(values, Buffer.prototype.writeInt32LE, 4);
const int64s = (values) =>
  packed(values.map(BigInt), Buffer.prototype.writeBigInt64LE, 8);
const floats = (values) => packed(values, Buffer.prototype.writeFloatLE, 4);

function ringTokens(start, length) {
  return Array.from({ length }, (_, i) => RING[(start + i) % RING.length]);
}

function ringDatum(start) {
  const tokens = ringTokens(start, 13);
  return {
    model_input: [{ tokens: int32s(tokens.slice(0, -1)) }],
    // Sorted by name.
    loss_fn_inputs: [
      { name: 'target_tokens', tensor: { dtype: 'DTYPE_INT64', dense: int64s(tokens.slice(1)) } },
      { name: 'weights', tensor: { dtype: 'DTYPE_FLOAT32', dense: floats(Array(12).fill(1)) } },
    ],
  };
}

// The calls this example needs. Every call carries the key in the metadata `x-api-key`.
class Lathe {
  constructor(address, credentials, apiKey) {
    // The default of 4 MiB is less than a large training request or result.
    const options = {
      'grpc.max_receive_message_length': -1,
      'grpc.max_send_message_length': -1,
    };
    this.engine = new lathe.v1.Engine(address, credentials, options);
    this.streaming = new lathe.v1.Streaming(address, credentials, options);
    this.metadata = new grpc.Metadata();
    this.metadata.set('x-api-key', apiKey);
  }

  call(method, request, timeoutMs = 30000) {
    const deadline = Date.now() + timeoutMs;
    return new Promise((resolve, reject) => {
      this.engine[method](request, this.metadata, { deadline }, (error, response) =>
        error ? reject(error) : resolve(response));
    });
  }

  // Polls until the operation is done; a failed operation throws.
  async result(requestId) {
    const request = { request_id: requestId, wait_ms: WAIT_MS };
    for (;;) {
      const { result } = await this.call('GetResult', request, WAIT_MS + 5000);
      if (!result) continue;
      if (result.outcome === 'error') throw new Error(`${requestId}: ${result.error.message}`);
      return result;
    }
  }

  async run(method, request) {
    return this.result((await this.call(method, request)).request_id);
  }

  // A readable stream of SampleStreamResponse; its cancel() cancels the sample.
  sampleStream(request) {
    return this.streaming.SampleStream(request, this.metadata, { deadline: Date.now() + 120000 });
  }

  close() {
    this.engine.close();
    this.streaming.close();
  }
}

// Gives the id of a sampling session over the trained weights.
async function train(client, sessionId, baseModel, steps, learningRate) {
  const created = await client.run('CreateModel', {
    session_id: sessionId,
    model_seq_id: 0,
    base_model: baseModel,
    lora_config: { rank: 8, seed: 0, train_attn: true, train_mlp: true, train_unembed: true },
  });
  const modelId = created.create_model.model_id;
  const data = RING.map((_, start) => ringDatum(start));
  let seqId = 0; // of the model's operations: 1, 2, …; the server keeps their order
  for (let step = 0; step < steps; ++step) {
    const forwardBackward = await client.call('ForwardBackward', {
      model_id: modelId,
      seq_id: seqId + 1,
      data,
      loss: { name: 'cross_entropy' },
    });
    // Sent at once: the step waits for its gradient at the server.
    const optimStep = await client.call('OptimStep', {
      model_id: modelId,
      seq_id: seqId + 2,
      adam_params: { learning_rate: learningRate, beta1: 0.9, beta2: 0.95, eps: 1e-8 },
    });
    seqId += 2;
    const { metrics } = (await client.result(forwardBackward.request_id)).forward_backward;
    const loss = metrics.find((metric) => metric.name === 'loss:sum').value / (12 * data.length);
    await client.result(optimStep.request_id);
    console.log(`step ${String(step).padStart(2)}  loss ${loss.toFixed(4).padStart(7)}`);
  }
  const saved = await client.run('SaveWeightsForSampler', {
    model_id: modelId,
    seq_id: seqId + 1,
    sampling_session_seq_id: 0,
  });
  return saved.save_weights_for_sampler.sampling_session_id;
}

async function sample(client, samplingSessionId, numTokens) {
  const stream = client.sampleStream({
    sampling_session_id: samplingSessionId,
    seq_id: 0,
    num_samples: 1,
    prompt: [{ tokens: int32s(RING) }],
    params: { max_tokens: numTokens, temperature: 0, top_k: -1, top_p: 1 },
  });
  const tokens = [];
  for await (const response of stream) {
    if (response.event !== 'tokens') continue;
    const bytes = response.tokens.tokens;
    for (let i = 0; i < bytes.length; i += 4) tokens.push(bytes.readInt32LE(i));
    console.log(`sampled [${tokens.join(', ')}]`);
    if (response.tokens.stop === 'SAMPLE_STOP_LENGTH') console.log('stopped by max_tokens');
  }
  return tokens.join() === ringTokens(0, numTokens).join();
}

function makeCredentials(options) {
  if (!options.ca) return grpc.credentials.createInsecure();
  const read = (file) => (file ? fs.readFileSync(file) : null);
  return grpc.credentials.createSsl(read(options.ca), read(options.key), read(options.cert));
}

function parseOptions() {
  const { values } = parseArgs({
    options: {
      address: { type: 'string' },
      'api-key': { type: 'string' },
      ca: { type: 'string' },
      cert: { type: 'string' },
      key: { type: 'string' },
      steps: { type: 'string', default: '12' },
      tokens: { type: 'string', default: '8' },
      // High, for a tiny model; a real one wants about 1e-4.
      'learning-rate': { type: 'string', default: '0.004' },
    },
  });
  if (!values.address || !values['api-key']) {
    console.error('usage: train_and_sample.js --address HOST:PORT --api-key KEY');
    process.exit(2);
  }
  return values;
}

async function main() {
  const options = parseOptions();
  const client = new Lathe(options.address, makeCredentials(options), options['api-key']);
  try {
    const { models } = await client.call('GetCapabilities', {});
    const { session_id: sessionId } = await client.call('CreateSession', {
      ordering: 'SESSION_ORDERING_SERIAL',
    });
    const samplingSessionId = await train(client, sessionId, models[0].name,
      Number(options.steps), Number(options['learning-rate']));
    const isRight = await sample(client, samplingSessionId, Number(options.tokens));
    await client.call('FinishSession', { session_id: sessionId, reason: 'success' });
    console.log(isRight ? 'the sample follows the ring' : 'the sample leaves the ring');
    return isRight ? 0 : 1;
  } catch (error) {
    if (error.code === undefined) throw error;
    console.error(`${grpc.status[error.code]}: ${error.details}`);
    return 1;
  } finally {
    client.close();
  }
}

main().then((code) => {
  process.exitCode = code;
});
