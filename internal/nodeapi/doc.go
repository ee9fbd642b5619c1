// Package nodeapi is what a node agent answers to those who ask: its server and,
// beside it, the client that berth's commands are made of.
//
// Where the kubelet has a path for something, the path is the kubelet's: /pods,
// /containerLogs, /exec, /attach, /portForward. What only berth has is below
// /berth/v1. Today it is served on a unix socket in the run folder, which only
// root can open; whoever can open it may do everything.
//
// Handlers hold no state but which runs follow which pods: they ask the agent. One file a resource, api_<it>.go.
package nodeapi
