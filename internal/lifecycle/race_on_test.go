//go:build race

package lifecycle

// underRace says that the race detector makes everything slower.
const underRace = true
