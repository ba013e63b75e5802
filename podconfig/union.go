package podconfig

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// view is a set of pods in which every UID and every full name is unique.
type view struct {
	// entries in the order of the sources and, within one, of its snapshot.
	entries []*entry
	byUID   map[types.UID]*entry
}

// union decides which pods count where several sources offer the same: who holds
// a full name keeps it for as long as it offers it; a free one goes to the first
// source that wants it.
type union struct {
	// holders is who has each full name; last is the outcome of the merge before
	// while one is under way. Both are kept to save memory.
	holders, last map[fullName]*entry
	want          view
	complaints    complaints
}

// merge returns what is wanted in all, and the pods that lose out now and did not
// before. The view is valid until the next call.
func (u *union) merge(origins []*origin) (view, []Rejection) {
	if u.holders == nil {
		u.holders, u.last = map[fullName]*entry{}, map[fullName]*entry{}
		u.want.byUID = map[types.UID]*entry{}
	}
	u.holders, u.last = u.last, u.holders
	clear(u.holders)
	clear(u.want.byUID)
	u.want.entries = u.want.entries[:0]

	for _, o := range origins {
		for _, e := range o.entries {
			if h := u.last[e.key]; h != nil && h.origin == o && u.want.byUID[e.pod.UID] == nil {
				u.give(e)
			}
		}
	}
	for _, o := range origins {
		for _, e := range o.entries {
			switch holder := u.holders[e.key]; {
			case holder == e:
			case holder != nil:
				u.refuse(e, holder, "name")
			case u.want.byUID[e.pod.UID] != nil:
				u.refuse(e, u.want.byUID[e.pod.UID], "UID")
			default:
				u.give(e)
			}
		}
	}
	for _, o := range origins {
		for _, e := range o.entries {
			if u.holders[e.key] == e {
				u.want.entries = append(u.want.entries, e)
			}
		}
	}
	return u.want, u.complaints.news()
}

func (u *union) give(e *entry) {
	u.holders[e.key] = e
	u.want.byUID[e.pod.UID] = e
}

func (u *union) refuse(e, holder *entry, what string) {
	u.complaints.add(e.origin.name, e.pod, holder.pod.UID, func() error {
		return fmt.Errorf("pod %s from source %q: pod %s from source %q has the same %s: %w and keeps it until it goes away",
			runtime.RefOf(e.pod), e.origin.name, runtime.RefOf(holder.pod), holder.origin.name, what, ErrDuplicatePod)
	})
}

// complaints turns the pods that are rejected in each round into those that are
// rejected newly, so that each is reported once for as long as it lasts.
type complaints struct {
	now, before map[complaint]struct{}
	fresh       []Rejection
}

type complaint struct {
	source string
	ref    runtime.PodRef
	other  types.UID
}

// add notes a rejected pod, and the one that it lost to.
func (c *complaints) add(source string, pod *v1.Pod, other types.UID, err func() error) {
	key := complaint{source, runtime.RefOf(pod), other}
	if _, known := c.now[key]; known {
		return
	}
	if c.now == nil {
		c.now = map[complaint]struct{}{}
	}
	c.now[key] = struct{}{}
	if _, known := c.before[key]; !known {
		c.fresh = append(c.fresh, Rejection{Source: source, Pod: pod, Err: err()})
	}
}

// news ends the round.
func (c *complaints) news() []Rejection {
	fresh := c.fresh
	c.now, c.before = c.before, c.now
	clear(c.now)
	c.fresh = nil
	return fresh
}
