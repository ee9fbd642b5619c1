// Package network gives pods their network: a bridge on the host, a veth pair
// per pod with eth0 inside, addresses out of one range per family, masquerading
// for what leaves the range, and host ports.
//
// Everything is done in this process over netlink. One nftables table of our
// own holds every rule, but for two that let pods through a firewall like
// Docker's; host ports are elements of its maps, so that a thousand
// pods cost a thousand elements and still the same few rules.
//
// Promises:
//   - Setup and Teardown may be repeated; each is keyed by the pod's id.
//   - What a pod was given is on disk before the kernel is told, so a process
//     that is killed at any moment leaves nothing that a later one does not find
//     again (with Setup of the same id, Teardown, or Reclaim).
//   - An address is given out again only after the link of its former owner is
//     gone, and only after all others of the range had their turn.
//   - Cleanup removes all that the package ever made, except that it leaves
//     net.ipv4.ip_forward on.
//
// It never creates or removes a network namespace; it is handed a path.
//
// State is kept in one small file a pod, changed by rename but not synced: it
// describes interfaces and rules, which do not survive the power cut that a sync
// guards against. Files of an earlier boot are discarded.
//
// Known limits: one Linux bridge has 1023 ports, so one Network has at most 1023
// pods. The kernel has no route_localnet for IPv6, so a host port is not
// reachable over [::1]; over 127.0.0.1 and every other address of the host it is.
package network
