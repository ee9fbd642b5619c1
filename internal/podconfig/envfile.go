package podconfig

import (
	"fmt"
	"strings"
)

// envFileValue finds the value of key in a file of NAME='value' lines, where
// values stand in single quotes, may span lines and are taken as they are;
// lines that begin with # are comments. It is empty if the key is not there, or
// if white space stands before the quote. KEP-3721: anything else is an error,
// so that all shells agree on what a file means.
func envFileValue(content []byte, key string) (string, error) {
	lines := strings.Split(string(content), "\n")
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	for i := 0; i < len(lines); i++ {
		line := strings.TrimLeft(lines[i], " \t")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		start := i + 1
		name, rest, ok := strings.Cut(line, "=")
		switch {
		case !ok:
			return "", fmt.Errorf("line %d has no '='; write NAME='value'", start)
		case name == "":
			return "", fmt.Errorf("line %d has no name before '='; write NAME='value'", start)
		case strings.TrimRight(name, " \t") != name:
			return "", fmt.Errorf("line %d has white space before '='; write NAME='value'", start)
		}
		if rest != strings.TrimLeft(rest, " \t") {
			if name == key {
				return "", nil
			}
			continue
		}
		rest, ok = strings.CutPrefix(rest, "'")
		if !ok {
			return "", fmt.Errorf("line %d: the value is not in single quotes; write NAME='value'", start)
		}
		var value strings.Builder
		for {
			text, after, closed := strings.Cut(rest, "'")
			value.WriteString(text)
			if closed {
				after = strings.TrimLeft(after, " \t")
				if after != "" && !strings.HasPrefix(after, "#") {
					return "", fmt.Errorf("line %d has something after the closing quote; write NAME='value'", i+1)
				}
				break
			}
			if i++; i == len(lines) {
				return "", fmt.Errorf("the quote opened in line %d is not closed", start)
			}
			value.WriteString("\n")
			rest = lines[i]
		}
		if name == key {
			return value.String(), nil
		}
	}
	return "", nil
}
