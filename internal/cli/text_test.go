package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-run/berth/internal/nodeapi"
)

func TestPrintableLeavesNothingThatMovesTheCursor(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                             "plain",
		"\x1b[1;31mred\x1b[0m":              "red",
		"\x1b]0;title\x07after":             "after",
		"\x1b]8;;http://x\x1b\\link":        "link",
		"a\tb\r\b\x00c":                     "a    bc",
		"\x1b(Bx":                           "Bx",
		"cut off \x1b[12":                   "cut off ",
		"\u009b31mC1":                       "31mC1",
		"bad \xff byte":                     "bad \uFFFD byte",
		"\x1b]never ends, and what follows": "",
	} {
		if got := printable(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestCutAndPadCountCells(t *testing.T) {
	for _, c := range []struct {
		text string
		size int
		want string
	}{
		{"short", 8, "short   "},
		{"much too long", 8, "much to…"},
		{"日本語テキスト", 7, "日本語…"},
		{"日本語テキスト", 8, "日本語… "},
		{"e\u0301te\u0301", 4, "e\u0301te\u0301 "},
		{"x", 0, ""},
	} {
		if got := pad(c.text, c.size); got != c.want {
			t.Errorf("pad(%q, %d) is %q, want %q", c.text, c.size, got, c.want)
		}
	}
}

func TestAStreamThatWasCutGoesOnWithoutGapOrRepetition(t *testing.T) {
	line := func(container string, attempt, second int, text string) nodeapi.LogLine {
		return nodeapi.LogLine{UID: "u", Container: container, Attempt: attempt, Time: epoch.Add(time.Duration(second) * time.Second), Text: []byte(text)}
	}
	all := []nodeapi.LogLine{
		line("a", 0, 1, "a0"), line("a", 0, 2, "a1"), line("a", 0, 2, "a2"), line("a", 0, 2, "a3"),
		line("a", 1, 2, "a4"), line("b", 0, 1, "b0"), line("a", 1, 3, "a5"),
	}
	for shown := range len(all) + 1 {
		seen := newSeenLines()
		var got []string
		for _, l := range all[:shown] {
			seen.add(l)
			got = append(got, string(l.Text))
		}
		skip := seen.again()
		for _, l := range all {
			if !skip.knows(l) {
				seen.add(l)
				got = append(got, string(l.Text))
			}
		}
		if text := strings.Join(got, " "); text != "a0 a1 a2 a3 a4 b0 a5" {
			t.Errorf("cut after %d lines: %s", shown, text)
		}
	}
}

func TestNamesOfPods(t *testing.T) {
	var pods []corev1.Pod
	for _, n := range []string{"default/web", "shop/web", "shop/db", "a/db", "x/only"} {
		ns, name, _ := strings.Cut(n, "/")
		pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}})
	}
	for _, c := range []struct{ arg, namespace, want string }{
		{"web", "", "web"},
		{"web", "shop", "shop/web"},
		{"shop/web", "", "shop/web"},
		{"db", "", "shop/db a/db"},
		{"pod/web", "", "web"},
		{"po/web", "shop", "shop/web"},
		{"only", "", "x/only"},
		{"only", "default", ""},
		{"none", "", ""},
	} {
		var got []string
		for _, p := range findPods(pods, c.arg, c.namespace) {
			got = append(got, podName(p.Namespace, p.Name))
		}
		if text := strings.Join(got, " "); text != c.want {
			t.Errorf("%+v: got %q", c, text)
		}
	}
}

func TestForegroundLogLeavesOutWarningsAboutSinglePods(t *testing.T) {
	var out bytes.Buffer
	l, err := newLogging(&out, "", "text")
	if err != nil {
		t.Fatal(err)
	}
	l.logger.Warn("the disk is slow")
	l.logger.Warn("one pod fails", "pod", "web")
	l.logger.With("uid", "1").Warn("another fails")
	l.logger.With("pod", "web").Error("a bug")
	l.logger.Info("for your information")
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.Contains(got, "slow") || !strings.Contains(got, "a bug") {
		t.Errorf("it logs:\n%s", got)
	}
	out.Reset()
	if l, err = newLogging(&out, "warn", "json"); err != nil {
		t.Fatal(err)
	}
	l.logger.Warn("one pod fails", "pod", "web")
	if !strings.HasPrefix(out.String(), `{"time":`) {
		t.Errorf("with --log-level warn --log-format json it logs %q", out.String())
	}
	for _, bad := range [][2]string{{"loud", "text"}, {"", "xml"}} {
		if _, err := newLogging(&out, bad[0], bad[1]); err == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}

func TestTheNameOfAContainerIsCutLast(t *testing.T) {
	for _, c := range []struct {
		origin string
		limit  int
		want   string
	}{
		{"web/app", 20, "web/app"},
		{"a-rather-long-name/app", 12, "a-rathe…/app"},
		{"a-rather-long-name/application", 13, "…/application"},
		{"a-rather-long-name/application", 8, "…/appli…"},
	} {
		if got := cutOrigin(c.origin, c.limit); got != c.want {
			t.Errorf("%s in %d cells: %s, want %s", c.origin, c.limit, got, c.want)
		}
	}
}

func TestMessagesBeginWithWhatIsNew(t *testing.T) {
	id := strings.Repeat("0123456789abcdef", 4)
	for text, want := range map[string]string{
		"Failed to create pod sandbox: cannot run sandbox of pod default/web: cannot connect the sandbox: cannot set up the pod's network: no address is left": "no address is left",
		"cannot start container " + id + ": gone": "cannot start container 0123456789ab: gone",
		"image x@sha256:" + id:                    "image x@sha256:" + id,
		"one\ntwo":                                "one …",
	} {
		if got := brief(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestThePodsThereAreAreNamedSoThatTheyCanBeFound(t *testing.T) {
	pods := []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hello"}}, {ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "one"}}}
	for arg, want := range map[string]string{
		"hello":   "there is no pod hello in that namespace; there are: default/hello, x/one",
		"y/hello": "there is no pod y/hello; there are: default/hello, x/one",
		"other":   "there is no pod other; there are: hello, x/one",
	} {
		if got := noSuchPod(arg, pods).Error(); got != want {
			t.Errorf("%s: %s, want %s", arg, got, want)
		}
	}
}
