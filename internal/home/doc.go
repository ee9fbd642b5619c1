// Package home is the two folders of a node: the root, for what outlives the
// machine's uptime, and the run folder, for what does not. It says where things
// are in them, to whom a folder belongs and who works on it, and removes what
// berth made.
//
// # What it promises
//
//   - A folder that holds anything else is never taken as a root or run folder,
//     whoever asks: only an empty one, or one that a marker says is berth's.
//   - Removal takes away the names that berth gives, and each folder only if
//     nothing else is left in it.
//   - A root is the same by whatever name it is reached, and remembers its run
//     folder and the mark of what it has elsewhere: bridge, cgroups, rules.
//   - One process at a time works on a root, for as long as it holds a Lock.
package home
