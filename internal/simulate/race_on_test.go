//go:build race

package simulate

// underRace says that the race detector makes everything slower.
const underRace = true
