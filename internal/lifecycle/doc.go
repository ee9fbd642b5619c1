// Package lifecycle is the core of berth: it decides, for one pod, what should
// be under way, which probes should run and what status to report.
//
// It is pure. Decide and History.Apply take values and return values; they read
// no clock, do no I/O, start no goroutine and write no log. Equal input gives an
// equal answer. The worker around it (package podworker) observes the runtime,
// calls Decide, makes what runs equal to what is wanted, and folds what happened
// into the History, which it keeps on disk.
//
// Decide returns sets that should hold, not commands: an action that is wanted
// and not under way is started, one that is under way and no longer wanted is
// cancelled. A cancelled action still counts as under way until it has ended,
// because it may have taken effect.
//
// Each file holds the rules of one topic; decide.go puts them in order.
package lifecycle
