// Package podworker runs pods: one serial loop for each, around the pure core
// in package lifecycle.
//
// A worker takes what happened (an action ended, a probe turned, the pod was
// changed, somebody said "look again"), folds it into the pod's history,
// observes the runtime where that is needed, asks lifecycle.Step what should
// hold, and makes it hold: it starts the actions that are wanted and not under
// way, cancels those no longer wanted, hands probes and status to others, and
// sets one timer. Nothing is chosen here.
//
// Promises:
//   - Each action runs in a goroutine of its own, so that a slow pull, hook or
//     stop delays no other pod and no independent action of the same pod. The
//     worker waits for all of them before it returns.
//   - The start of a container is on disk before it begins. Where it cannot be
//     written, the container is not started, and its status says so; stops go on.
//   - Signals may be lost or doubled: they only say "look again".
//   - A worker never decides on an observation older than the end of its last
//     action.
//   - When its ctx ends a worker detaches: it abandons what is under way, keeps
//     its history, and leaves containers as they are.
//   - Two pods of one name never run at once (see Workers).
package podworker
