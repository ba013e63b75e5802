package crilog_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"pgregory.net/rapid"

	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

func TestFindRotated(t *testing.T) {
	files, leftovers := crilog.FindRotated("0.log", []string{
		"0.log", "1.log.20260102-030405", "0.log.20260102-030405", "0.log.20260102-030406", "0.log.20260102-030406_001",
		"0.log.20260102-030406_010.gz",
		"0.log.20250102-030405.gz", "0.log.20250102-030405", "0.log.20260101-000000.tmp", "0.log.1", "0.log.mine",
		"0.log.20260102-030405.bak",
		"0.log.20261302-030405", "0.log.20260102-030406_1", "0.log.20260102-030406_000", "0.log.20260102-030406_01x",
		"0.log.20260102-030406.gz.tmp", "x0.log.20260102-030406",
	})
	var names []string
	for _, r := range files {
		names = append(names, r.File())
	}
	assert.Equal(t, []string{
		"0.log.20250102-030405.gz", "0.log.20260102-030405", "0.log.20260102-030406", "0.log.20260102-030406_001",
		"0.log.20260102-030406_010.gz",
	}, names)
	assert.Equal(t, []string{"0.log.20250102-030405", "0.log.20260101-000000.tmp"}, leftovers)
}

func TestNextRotated(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
	for _, tc := range []struct{ last, next string }{
		{"", "0.log.20260102-030405"},
		{"0.log.20260102-030404_999", "0.log.20260102-030405"},
		{"0.log.20260102-030405", "0.log.20260102-030405_001"},
		{"0.log.20260102-030405_001", "0.log.20260102-030405_002"},
		{"0.log.20260102-030405_999", "0.log.20260102-030406"},
		{"0.log.20270101-000000", "0.log.20270101-000000_001"}, // the clock was set back
		{"0.log.20261231-235959_999", "0.log.20270101-000000"},
	} {
		assert.Equal(t, tc.next, crilog.NextRotated("0.log", tc.last, now), tc.last)
	}
}

// Names that kubelet sorts as text have the order in which they were made, compressed or not.
func TestOrderOfNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.Local)
		var names, files []string
		for range rapid.IntRange(1, 30).Draw(t, "rotations") {
			now = now.Add(time.Duration(rapid.IntRange(-1000, 1500).Draw(t, "ms")) * time.Millisecond)
			last := ""
			if len(names) > 0 {
				last = names[len(names)-1]
			}
			name := crilog.NextRotated("0.log", last, now)
			names = append(names, name)
			if rapid.Bool().Draw(t, "gz") {
				name += crilog.Compressed
			}
			files = append(files, name)
		}
		found, _ := crilog.FindRotated("0.log", files)
		assert.Len(t, found, len(names))
		for i, r := range found {
			assert.Equal(t, names[i], r.Name)
		}
		assert.True(t, slices.IsSorted(names))
		assert.True(t, slices.IsSorted(files), strings.Join(files, " "))
	})
}

func FuzzFindRotated(f *testing.F) {
	f.Add("0.log", "0.log.20260102-030405.gz\n0.log.20260102-030405\n0.log.20260102-030405_999.tmp")
	f.Fuzz(func(t *testing.T, log, names string) {
		list := strings.Split(names, "\n")
		files, leftovers := crilog.FindRotated(log, list)
		last := ""
		for _, r := range files {
			assert.Contains(t, list, r.File())
			assert.Less(t, last, r.Name)
			last = r.Name
		}
		for _, name := range leftovers {
			assert.Contains(t, list, name)
		}
		next := crilog.NextRotated(log, last, time.Unix(0, 0))
		assert.Less(t, last, next)
		found, _ := crilog.FindRotated(log, []string{next})
		assert.Len(t, found, 1)
	})
}
