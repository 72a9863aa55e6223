#include "libs/common/fail_point/fail_point_list.h"

namespace lathe {
namespace {

constexpr FailPointInfo kList[] = {
    {"engine.start.locked", "the data directory is locked, the store is not open"},
    {"engine.migration.step", "one migration is committed, the next has not begun"},
    {"engine.start.loaded", "the new term and all state are read, no listener is open"},
    {"engine.body.before_write", "a body above 64 KiB has no file yet", true},
    {"engine.body.written", "its file is durable, its request is in no transaction"},
    {"engine.accept", "the core has decided to accept, the row waits for its commit"},
    {"engine.commit.before", "a transaction is about to begin", true, true},
    {"engine.commit.applied", "its writes are made, COMMIT has not run"},
    {"engine.commit.after", "the transaction is durable, the core has no notification yet"},
    {"engine.notify.before", "a result is durable, its pollers are not notified"},
    {"engine.notify.after", "its pollers are notified"},
    {"engine.dispatch.before", "a command is decided, the worker's stream does not have it"},
    {"engine.dispatch.after", "the worker's stream has the command"},
    {"engine.result.received", "a result came from the worker, the core has not received it"},
    {"engine.result.before_commit", "the core has the result, which waits for its commit"},
    {"engine.ack.before", "a result is durable, the worker has no Ack"},
    {"engine.ack.after", "the Ack is on its way"},
    {"engine.tick", "the core is about to handle its tick"},
    {"engine.snapshot.before_commit", "a snapshot is complete, its row waits for its commit"},
    {"engine.snapshot.committed", "its row is durable, the core is not notified"},
    {"engine.version.before_commit", "a sampler version is on disk, its row waits for its commit"},
    {"engine.version.committed", "its row is durable, the core is not notified"},
    {"engine.recovery.restore", "a model is about to be restored from a snapshot"},
    {"engine.recovery.replayed", "an operation has run again, the next is not sent"},
    {"engine.recovery.done", "a model has the state of its ledger again, its work resumes"},
    {"worker.load.base", "the base model is about to be read"},
    {"worker.start.ready", "the base model is loaded, the engine has no report"},
    {"worker.train.begin", "a training request is about to run; value: its number of datums"},
    {"worker.train.pass", "a micro-batch is about to run; an error is one of CUDA", true},
    {"worker.train.added", "a request's gradient is in the accumulator, its report is not made"},
    {"worker.step.before", "an optimizer step was checked and has changed nothing", false, true},
    {"worker.step.applied", "weights and moments have changed, the report is not made"},
    {"worker.decode.pass", "a pass of the sampler is about to run"},
    {"worker.report.before", "a result is about to be written to the stream"},
    {"worker.report.sent", "it was handed to the stream"},
    {"worker.ack.received", "an Ack came, the result is still held"},
    {"worker.load.checkpoint", "a checkpoint is about to be read", true},
    {"worker.save.staged", "weights are copied, no file is written"},
    {"worker.save.file", "a file of a save is about to be created", true},
    {"worker.save.write", "bytes are about to be written to it", true, true},
    {"worker.save.fsync", "its bytes are written, fsync has not run", true},
    {"worker.save.manifest", "every other file is durable, the manifest is not written", true},
    {"worker.save.before_rename", "every file is durable in the temporary directory", true},
    {"worker.save.renamed", "the directory has its final name, which is not durable", true},
    {"worker.publish.files", "every file of a save is an object, the manifest is none"},
    {"worker.publish.manifest", "the manifest is an object, this machine's copy has no name"},
    {"worker.save.committed", "the checkpoint is durable, the engine has no report"},
    {"worker.snapshot.staged", "a model is copied, no file of its snapshot is written"},
    {"worker.snapshot.written", "the snapshot is durable, the engine has no report"},
    {"worker.version.chunk", "a part of a sampler version is sent to another group"},
    {"worker.version.written", "a sampler version is durable, the engine has no report"},
    {"worker.restore.done", "a model has the state of its snapshot, the report is not made"},
    {"gateway.request.read", "a request is read and checked, nothing was done"},
    {"gateway.engine.before", "a call to the engine is about to be made"},
    {"gateway.engine.after", "the engine has answered, the client has no response"},
    {"gateway.poll.woken", "a long poll has its result, the client has not received it"},
};

}  // namespace

std::span<const FailPointInfo> FailPointList() { return kList; }

}  // namespace lathe
