package pleg

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestPace plays scripts. Their words are what happens: "open", "up", "broke",
// "hint", "hit", "relist" for one that finds nothing, "miss" for one that finds
// something the stream does not tell of in time, "told" for one whose find it does
// tell of. The periods after each word are what comes out, "!" where the stream is
// given up.
func TestPace(t *testing.T) {
	for _, tc := range []struct{ name, script, want string }{
		{"no stream", "relist relist relist", "1 1 1"},
		{"announced", "open up relist relist", "1 1 300 300"},
		{"announced, after relists without a stream", "relist open relist up relist", "1 1 2 1 300"},
		{"never announced", "open relist relist relist relist relist relist relist relist relist relist",
			"1 2 4 8 16 32 64 128 256 300 300"},
		{"proven by its first hint", "open relist relist up hint relist", "1 2 4 1 1 300"},
		{"broken", "open up relist broke relist open up relist", "1 1 300 1 1 1 1 300"},
		{"silent", "open up relist miss", "1 1 300 1!"},
		{"silent since the relist before", "open up relist hint relist miss", "1 1 300 300 300 1!"},
		{"silent before it is proven", "open relist miss miss miss miss", "1 2 1 1 1 1!"},
		{"partly deaf", "open up relist hint miss hint miss hint miss hint miss",
			"1 1 300 300 1 1 1 1 1 1 1!"},
		{"deaf until it hits, then trust grows", "open up relist hint miss relist relist hit relist relist hint miss",
			"1 1 300 300 1 1 1 1 2 4 4 1"},
		{"deaf over a new connection", "open up relist miss broke open up relist relist hint hit relist", "1 1 300 1! 1 1 1 1 1 1 1 2"},
		{"trust as it was", "open up relist hint miss hit relist relist relist relist relist relist relist relist relist broke open up relist",
			"1 1 300 300 1 1 2 4 8 16 32 64 128 256 300 1 1 1 300"},
		{"late hints are no misses", "open up relist told told", "1 1 300 300 300"},
		{"what a relist finds before the stream stood", "miss open miss", "1 1 2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := pace{tight: time.Second, safety: 300 * time.Second, maxMisses: 3, period: time.Second}
			var got []string
			for _, word := range strings.Fields(tc.script) {
				giveUp := ""
				switch word {
				case "open":
					p.opened()
				case "up":
					p.proven()
				case "broke":
					p.broke()
				case "hint":
					p.heard = true
				case "hit":
					p.hit()
				default:
					if !p.relisted(p.epoch) {
						break
					}
					if word != "miss" {
						p.clean()
					} else if p.missed() {
						giveUp = "!"
					}
				}
				got = append(got, fmt.Sprint(p.period.Seconds(), giveUp))
			}
			assert.Equal(t, tc.want, strings.Join(got, " "))
		})
	}
}

func TestPaceOfARelistThatBeganBeforeTheStreamStood(t *testing.T) {
	p := pace{tight: time.Second, safety: time.Minute, period: time.Second}
	before := p.epoch
	p.opened()
	p.relisted(before)
	assert.Equal(t, time.Second, p.period)
	opened := p.epoch
	p.proven()
	assert.False(t, p.relisted(opened))
	assert.Equal(t, time.Second, p.period, "it has not reconciled anything")
	assert.False(t, p.relisted(p.epoch))
	assert.Equal(t, time.Minute, p.period)
	assert.True(t, p.relisted(p.epoch), "from now on the stream answers")
}
