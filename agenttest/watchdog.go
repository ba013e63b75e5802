package agenttest

import (
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// stuck is the real time after which a goroutine is taken for one that waits for ever.
const stuck = 30 * time.Second

// A watchdog ends the process if time in a bubble cannot pass: a goroutine of the bubble waits for something outside of
// it, such as a channel that was made before the bubble. It runs in real time, outside of the bubble.
type watchdog struct {
	bubble chan string // receives the name of the bubble; has room for it
	stop   chan struct{}
	ended  chan struct{}
}

func startWatchdog(every time.Duration, bark func(message string)) *watchdog {
	w := &watchdog{make(chan string, 1), make(chan struct{}), make(chan struct{})}
	go w.run(every, bark)
	return w
}

// enter is called in the bubble.
func (w *watchdog) enter() { w.bubble <- bubbleOf(stacks(false)) }

func (w *watchdog) close() {
	close(w.stop)
	<-w.ended
}

func (w *watchdog) run(every time.Duration, bark func(message string)) {
	defer close(w.ended)
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	var bubble string
	before := map[string]bool{}
	for {
		select {
		case <-w.stop:
			return
		case bubble = <-w.bubble:
			continue
		case <-ticker.C:
		}
		if bubble == "" {
			continue
		}
		now := map[string]bool{}
		for _, g := range waiting(stacks(true), bubble) {
			if now[g] = true; before[g] {
				bark(fmt.Sprintf("agenttest: time does not pass, since a goroutine has waited for %v of real time for "+
					"something outside of the test's bubble, such as a channel that was made before agenttest.Run; "+
					"make it in the test function, or in Options.Configure:\n%s", every, g))
				return
			}
		}
		before = now
	}
}

// stacks returns the stack of the calling goroutine, or of all.
func stacks(all bool) string {
	for buf := make([]byte, 64<<10); ; buf = make([]byte, 2*len(buf)) {
		if n := runtime.Stack(buf, all); n < len(buf) {
			return string(buf[:n])
		}
	}
}

var inBubble = regexp.MustCompile(`^goroutine \d+ \[[^\]]*\b(synctest bubble \d+)\]:`)

// bubbleOf returns the name of the bubble in which the first goroutine of the stacks is.
func bubbleOf(stacks string) string {
	if m := inBubble.FindStringSubmatch(stacks); m != nil {
		return m[1]
	}
	return ""
}

// outside matches the state of a goroutine that waits on a channel, but not only on those of its bubble: then it is
// "(durable)".
var outside = regexp.MustCompile(
	`^goroutine \d+ \[(?:chan receive|chan send|select)(?:, \d+ minutes)?, synctest bubble \d+\]:`)

// waiting returns the stacks of the goroutines in the bubble that wait for something outside of it, without how long
// they have.
func waiting(stacks, bubble string) (list []string) {
	for g := range strings.SplitSeq(stacks, "\n\n") {
		if outside.MatchString(g) && bubbleOf(g) == bubble {
			head, rest, _ := strings.Cut(g, "\n")
			list = append(list, regexp.MustCompile(`, \d+ minutes`).ReplaceAllString(head, "")+"\n"+rest)
		}
	}
	return list
}
