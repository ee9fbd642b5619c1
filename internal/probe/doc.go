// Package probe runs the probes of containers: it makes the set of running
// probes equal to the one wanted, carries out their checks, counts the results
// against the thresholds, and reports outcomes that changed.
//
// It is dumb on purpose: which probes should run, and what follows from an
// outcome, is decided in package lifecycle. All state is keyed by container id,
// so that nothing is believed of a new container that was true of the old.
//
// # Promises
//
//   - At most one check of a probe is alive at a time, also of one that was
//     dropped and wanted again; a time-out ends the check's whole process tree.
//   - A check that hangs delays no other probe: after a moment it no longer
//     counts against the checks allowed at once.
//   - A probe has no goroutine and no socket between its checks.
//   - The first check of a new container is exact; later ticks may come up to a
//     twentieth of the period and 50 ms early, together with those of others.
//   - Results of probes that are no longer wanted are discarded, as are those of
//     checks cut off by the end of Run.
//   - Checks follow the monotonic clock; a jump of the wall clock neither stops
//     nor bunches them. Ticks missed by a slow check or a sleeping machine are
//     made up by one check.
//
// # Semantics
//
// They are the kubelet's (1.37), with these differences:
//
//   - The first check of a new container comes at its start plus
//     initialDelaySeconds; in the kubelet it comes at the next tick of a period
//     that began before the container did. After the startup probe has
//     succeeded, liveness and readiness are checked at once (the kubelet does
//     this for readiness). Only containers that ran before this process did have
//     their first check spread over their period.
//
//   - Between the first check of a new container and the second, a startup or
//     readiness probe that has not succeeded yet is made again after 25 ms,
//     75 ms, 175 ms and so on (a command after 100 ms, 300 ms …): a server that
//     needs 30 ms is ready after 75 ms and not after a period. Failures of these
//     early checks count for nothing.
//
//   - An HTTP answer whose body breaks off or hangs is a failure. The kubelet
//     drops such checks, so that a liveness probe never fails there.
//
//   - A gRPC server that refuses the connection is tried again within the
//     time-out every quarter of a second; the kubelet waits a second or more.
//
//   - An exec whose process can't be killed counts as failed at its time-out and
//     at each tick after; the kubelet waits for it.
//
//   - Where this process or machine lacks descriptors, memory or local ports for
//     a connection, the check counts for nothing; in the kubelet it is a failure,
//     and restarts containers that are well.
//
// A check that can't be carried out (an unknown port name, a runtime that
// doesn't answer) is tried three times and then counts for nothing, as in the
// kubelet.
//
// http probes speak HTTP/1.1, or HTTP/2 in clear text where httpGet.protocol is
// HTTP2; over TLS the server chooses. grpc probes speak clear text, or TLS where
// grpc.mode is TLS. Both fields are the API's own (1.37).
package probe
