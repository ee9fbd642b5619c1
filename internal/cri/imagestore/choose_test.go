package imagestore

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestChoose(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	ago := func(hours int) time.Time { return now.Add(-time.Duration(hours) * time.Hour) }
	images := []Candidate{
		{ID: "old", SizeBytes: 10, Known: ago(50), LastUsed: ago(40)},
		{ID: "older", SizeBytes: 10, Known: ago(60)},
		{ID: "fresh", SizeBytes: 10, Known: now.Add(-time.Minute)},
		{ID: "pinned", SizeBytes: 10, Known: ago(90), Pinned: true},
		{ID: "used", SizeBytes: 10, Known: ago(95), LastUsed: ago(1)},
		{ID: "running", SizeBytes: 10, Known: ago(99)},
	}
	usual := DefaultThresholds
	aged := DefaultThresholds
	aged.MaxAge = 45 * time.Hour
	cases := map[string]struct {
		available int64 // of 100
		t         Thresholds
		want      string
	}{
		"below the high mark nothing goes":          {16, usual, ""},
		"at the high mark the least recently used":  {15, usual, "older:disk"},
		"as many as it takes":                       {5, usual, "older:disk old:disk"},
		"all that may go, but no more":              {0, Thresholds{HighPercent: 85, LowPercent: 1, MinAge: time.Hour}, "older:disk old:disk used:disk"},
		"too long unused goes from an empty disk":   {100, aged, "older:age"},
		"what goes for age counts for the disk too": {15, aged, "older:age"},
		"what was used a moment ago stays":          {0, Thresholds{HighPercent: 85, LowPercent: 1, MinAge: 2 * time.Hour}, "older:disk old:disk"},
		"100 percent means never":                   {0, Thresholds{HighPercent: 100, LowPercent: 80}, ""},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			usage := DiskUsage{Now: now, CapacityBytes: 100, AvailableBytes: c.available, Images: images}
			var got []string
			for _, v := range Choose(usage, func(id string) bool { return id == "running" }, c.t) {
				got = append(got, v.ID+":"+v.Reason)
			}
			if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Never in use, pinned, young or twice; and none more than needed.
func TestChooseHoldsItsPromises(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	rapid.Check(t, func(t *rapid.T) {
		u := DiskUsage{Now: now, CapacityBytes: 1000, AvailableBytes: rapid.Int64Range(0, 1000).Draw(t, "available")}
		used := map[string]bool{}
		byID := map[string]Candidate{}
		for i := range rapid.IntRange(0, 12).Draw(t, "images") {
			c := Candidate{
				ID: string(rune('a' + i)), SizeBytes: rapid.Int64Range(1, 200).Draw(t, "size"), Pinned: rapid.Bool().Draw(t, "pinned"),
				Known: now.Add(-time.Duration(rapid.IntRange(0, 600).Draw(t, "age")) * time.Second),
			}
			if rapid.Bool().Draw(t, "was used") {
				c.LastUsed = now.Add(-time.Duration(rapid.IntRange(0, 600).Draw(t, "idle")) * time.Second)
			}
			used[c.ID] = rapid.Bool().Draw(t, "used")
			byID[c.ID] = c
			u.Images = append(u.Images, c)
		}
		victims := Choose(u, func(id string) bool { return used[id] }, DefaultThresholds)
		var freed, last int64
		seen := map[string]bool{}
		for _, v := range victims {
			c := byID[v.ID]
			if used[v.ID] || c.Pinned || seen[v.ID] || now.Sub(c.Known) < DefaultThresholds.MinAge || now.Sub(c.LastUsed) < DefaultThresholds.MinAge {
				t.Fatalf("%+v may not be chosen", c)
			}
			seen[v.ID] = true
			freed, last = freed+c.SizeBytes, c.SizeBytes
		}
		if need := bytesToFree(u, DefaultThresholds); len(victims) > 0 && freed-last >= need {
			t.Fatalf("freed %d though %d would do without the last", freed, need)
		}
	})
}
