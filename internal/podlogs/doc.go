// Package podlogs follows the log files of many containers at once: of each
// container the attempts one after the other (0.log, 1.log, …), of each attempt
// the rotated files and then the current one, as they grow.
//
// It promises that each line comes once and in order, through rotation and
// restarts, as long as the files are there when it comes to them; where some
// were removed before, it says so. It holds at most one line and one block of a file in memory for each container, however
// fast that one writes; a slow reader slows the reading, not the container.
//
// It never writes, and never decides when a container has ended: the caller says
// so. The format of the files is that of package cri/logs.
package podlogs
