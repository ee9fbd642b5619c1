package lifecycle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// deathTells are the stories, by title or file, that a death of the agent ends
// in another way, and why that is right.
var deathTells = map[string]string{
	"unseen.txt": "a death leaves no moment between a start and the look after it",
	"A start that is under way in a lost sandbox has to end before the container is started in the next.": "the start may have taken effect, and nobody waits for its end",
}

// The agent dies at any point of any story and starts again, with its history
// read back from JSON and nothing under way: the story ends as it did, and no
// container was started once more than it was.
func TestAnyStoryEndsTheSameWhenTheAgentDies(t *testing.T) {
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	if err != nil {
		t.Fatal(err)
	}
	forks, left, deaths := 0, 0, 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, story := range storiesOf(string(text)) {
			want, err := playWithDeath(story, -1)
			if err != nil {
				t.Fatalf("%s: %v", story.title, err)
			}
			if deathTells[story.title] != "" || deathTells[filepath.Base(file)] != "" {
				continue
			}
			for at := 1; at < len(story.commands); at++ {
				if deaths++; underRace && deaths%10 != 0 {
					continue
				}
				got, err := playWithDeath(story, at)
				if err != nil {
					left++ // the story needs an action under way that is not begun again
					continue
				}
				forks++
				if got != want {
					t.Errorf("%s: %s: with a death before %q:\n%s\nwithout:\n%s",
						filepath.Base(file), story.title, story.commands[at], got, want)
				}
			}
		}
	}
	if deaths < 400 || left > forks/5 {
		t.Errorf("%d deaths were played of %d, %d could not be", forks, deaths, left)
	}
}

type story struct {
	title    string
	commands []string // "look" at the end of each block
}

func storiesOf(text string) []story {
	var all []story
	for _, block := range strings.Split(strings.TrimSpace(text), "\n\n") {
		commands, _, _ := strings.Cut(block, "----")
		ran := false
		for line := range strings.Lines(commands) {
			line = strings.TrimSpace(line)
			if title, ok := strings.CutPrefix(line, "# "); ok {
				all = append(all, story{title: title})
			} else if line != "" {
				s := &all[len(all)-1]
				s.commands = append(s.commands, line)
				ran = true
			}
		}
		if ran {
			s := &all[len(all)-1]
			s.commands = append(s.commands, "look")
		}
	}
	return all
}

// playWithDeath plays a story, with a death of the agent before command number
// at, and lets it settle. It says how it ended and what was started how often.
func playWithDeath(s story, at int) (end string, err error) {
	var w *scenarioWorld
	for i, c := range s.commands {
		if strings.HasPrefix(c, "pod ") {
			w = newScenarioWorld()
			w.unchecked = true
		}
		if i == at {
			if err := w.do("restart"); err != nil {
				return "", err
			}
			w.look()
		}
		if c == "look" {
			w.look()
			continue
		}
		if err := w.do(c); err != nil {
			return "", err
		}
	}
	w.settle(nil)
	if len(w.violations) > 0 {
		return "", fmt.Errorf("%v", w.violations)
	}
	w.did = nil
	var started []string
	for name, h := range w.in.History.Containers {
		started = append(started, fmt.Sprintf("%s was started %d times", name, h.Attempts))
	}
	slices.Sort(started)
	return w.print() + strings.Join(started, "\n"), nil
}
