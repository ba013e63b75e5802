package pleg

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// TestSchedule plays scripts. Their words are what happens: "open", "up", "broke",
// "hint", "useful" for a hint of use, "relist" for one that finds nothing, "miss" for one that
// finds something the stream does not report in time, "late" for one whose find it reports
// in time. The periods after each word are the result, with "!" where the stream is given
// up.
func TestSchedule(t *testing.T) {
	for _, tc := range []struct{ name, script, want string }{
		{"no stream", "relist relist relist", "1 1 1"},
		{"announced", "open up relist relist", "1 1 300 300"},
		{"announced, after relists without a stream", "relist open relist up relist", "1 1 2 1 300"},
		{"never announced", "open relist relist relist relist relist relist relist relist relist relist",
			"1 2 4 8 16 32 64 128 256 300 300"},
		{"established by its first hint", "open relist relist up hint relist", "1 2 4 1 1 300"},
		{"broken", "open up relist broke relist open up relist", "1 1 300 1 1 1 1 300"},
		{"silent", "open up relist miss", "1 1 300 1!"},
		{"silent since the relist before", "open up relist hint relist miss", "1 1 300 300 300 1!"},
		{"silent before it is established", "open relist miss miss miss miss miss miss", "1 2 1 1 1 1 1 1!"},
		{"lossy", "open up relist hint miss hint miss hint miss hint miss hint miss hint miss",
			"1 1 300 300 1 1 1 1 1 1 1 1 1 1 1!"},
		{"lossy until a hint is of use, then the period grows", "open up relist hint miss relist relist useful relist relist hint miss",
			"1 1 300 300 1 1 1 1 2 4 4 1"},
		{"lossy over a new connection", "open up relist miss broke open up relist relist hint useful relist", "1 1 300 1! 1 1 1 1 1 1 1 2"},
		{"relied on as before", "open up relist hint miss useful relist relist relist relist relist relist relist relist relist broke open up relist",
			"1 1 300 300 1 1 2 4 8 16 32 64 128 256 300 1 1 1 300"},
		{"late hints are no misses", "open up relist late late", "1 1 300 300 300"},
		{"what a relist finds before the stream is established", "miss open miss", "1 1 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := schedule{short: time.Second, long: 300 * time.Second, period: time.Second}
			now := time.Now()
			found := []runtime.PodRef{{UID: "p"}}
			var got []string
			for _, word := range strings.Fields(tc.script) {
				giveUp := ""
				now = now.Add(time.Minute)
				switch word {
				case "open":
					s.streamOpened()
				case "up":
					s.streamEstablished(now)
				case "broke":
					s.streamEnded(now)
				case "hint":
					s.hinted("other")
				case "useful":
					s.usefulHint()
				case "relist":
					s.begin(now)
					s.succeeded(nil, now)
				default:
					s.begin(now)
					s.succeeded(found, now)
					if word == "late" {
						s.hinted("p")
					}
					if s.missedAt.IsZero() {
						break
					}
					assert.Equal(t, now.Add(hintDelay), s.missedAt)
					missed, gaveUp := s.takeMissed(s.missedAt)
					assert.Equal(t, word == "miss", len(missed) > 0)
					if gaveUp {
						giveUp = "!"
					}
				}
				got = append(got, fmt.Sprint(s.period.Seconds(), giveUp))
			}
			assert.Equal(t, tc.want, strings.Join(got, " "))
		})
	}
}

func TestScheduleOfARelistThatBeganBeforeTheStreamWasEstablished(t *testing.T) {
	s := schedule{short: time.Second, long: time.Minute, period: time.Second}
	now := time.Now()
	found := []runtime.PodRef{{UID: "p"}}
	s.begin(now)
	s.streamOpened()
	s.succeeded(found, now)
	assert.Equal(t, time.Second, s.period)
	s.begin(now)
	s.streamEstablished(now)
	s.succeeded(found, now)
	assert.Zero(t, s.missedAt)
	assert.Equal(t, time.Second, s.period, "it has not reconciled anything")
	s.begin(now)
	s.succeeded(found, now)
	assert.Zero(t, s.missedAt)
	assert.Equal(t, time.Minute, s.period)
	s.begin(now)
	s.succeeded(found, now)
	assert.NotZero(t, s.missedAt, "from now on the stream must report changes")
}
