package e2e

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

// holdings are what the process of an agent holds.
type holdings struct {
	// goroutines is their number by their stacks.
	goroutines map[string]int
	// files are what its descriptors stand for, sockets among them.
	files []string
}

// count is the size of holdings.
type count struct{ goroutines, sockets, files int }

func (h *holdings) count() (c count) {
	for _, n := range h.goroutines {
		c.goroutines += n
	}
	for _, file := range h.files {
		if strings.HasPrefix(file, "socket:") {
			c.sockets++
		}
	}
	c.files = len(h.files)
	return c
}

// beyond returns an error with what is held beyond before, nil if that is nothing.
func (h *holdings) beyond(before *holdings) error {
	now, then := h.count(), before.count()
	if now.goroutines <= then.goroutines && now.sockets <= then.sockets && now.files <= then.files {
		return nil
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%+v before, %+v now", then, now)
	if now.files > then.files || now.sockets > then.sockets {
		fmt.Fprintf(&text, "\nopen before: %q\nopen now:    %q", before.files, h.files)
	}
	for _, stack := range slices.Sorted(maps.Keys(h.goroutines)) {
		if n, were := h.goroutines[stack], before.goroutines[stack]; n > were && now.goroutines > then.goroutines {
			fmt.Fprintf(&text, "\n%d goroutines, %d before:\n%s", n, were, stack)
		}
	}
	return errors.New(text.String())
}

// holds counts what the agent holds. The connection of the count is among it; goroutines that follow the sizes of logs
// are not.
func (s *standalone) holds(t *testing.T) (*holdings, error) {
	t.Helper()
	h := &holdings{goroutines: map[string]int{}, files: s.OpenFiles(t)}
	code, profile, err := (&clientOfPort{base: s.base, http: s.http}).request(http.MethodGet,
		"/debug/pprof/goroutine?debug=1")
	if err != nil || code != http.StatusOK {
		return nil, fmt.Errorf("goroutines: %d %s %w", code, profile, err)
	}
	// The text has a paragraph for each stack: "n @ addresses", and a line for each function.
	_, profile, _ = strings.Cut(profile, "\n")
	for stack := range strings.SplitSeq(strings.TrimSpace(profile), "\n\n") {
		head, functions, _ := strings.Cut(stack, "\n")
		if strings.Contains(functions, "node/logs.(*Manager).follow") {
			continue // it comes and goes with each line of a log
		}
		number, _, _ := strings.Cut(head, " @")
		n, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("goroutines: %q: %w", head, err)
		}
		h.goroutines[functions] += n
	}
	return h, nil
}

// restingCounts is how often a count comes up if it is that of an agent at rest. Between, the agent may hold more or
// less for a moment.
const restingCounts = 10

// atRest returns what the agent holds when it has held as much several times.
func (s *standalone) atRest(t *testing.T) (rest *holdings) {
	t.Helper()
	seen := map[count]int{}
	Eventually(t, eventually, "the agent at rest", func() error {
		now, err := s.holds(t)
		if err != nil {
			return err
		}
		if seen[now.count()]++; seen[now.count()] < restingCounts {
			return fmt.Errorf("it holds %+v", now.count())
		}
		rest = now
		return nil
	})
	t.Logf("at rest the agent holds %+v", rest.count())
	return rest
}

// awaitRest waits until the agent holds no more than before, and stays so.
func (s *standalone) awaitRest(t *testing.T, before *holdings) {
	t.Helper()
	rested := 0
	Eventually(t, eventually, "nothing of the sessions left in the agent", func() error {
		now, err := s.holds(t)
		if err == nil {
			err = now.beyond(before)
		}
		if err != nil {
			rested = 0
			return err
		}
		if rested++; rested < restingCounts {
			return fmt.Errorf("it holds %+v", now.count())
		}
		return nil
	})
}
