//go:build race

package cli

// raceBuild says that this test binary checks for races, which makes it start
// slowly.
const raceBuild = true
