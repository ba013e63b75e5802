package podconfig

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// union decides which pods count where several sources offer the same: who holds
// a full name keeps it for as long as it offers it; a free one goes to the first
// source that wants it.
type union struct {
	// sole is the only origin with pods as of the last merge, if it was one: it
	// holds all that it offers, and the maps are not kept up.
	sole *origin
	// holders is who has each full name; last is the outcome of the merge before
	// while one is under way. They are kept to save memory, as are the others.
	holders, last map[fullName]*entry
	uids          map[types.UID]*entry
	want          []*entry
	complaints    complaints
}

// merge returns what is wanted in all, every UID and every full name once, in the
// order of the origins; and the pods that lose out now and did not before. The
// list is valid until the next call.
func (u *union) merge(origins []*origin) ([]*entry, []Rejection) {
	talkers := 0
	var sole *origin
	for _, o := range origins {
		if len(o.entries) > 0 {
			talkers++
			sole = o
		}
	}
	if talkers <= 1 {
		u.sole = sole
		clear(u.holders)
		if sole == nil {
			return nil, u.complaints.news()
		}
		return sole.entries, u.complaints.news()
	}
	if u.holders == nil {
		u.holders, u.last, u.uids = map[fullName]*entry{}, map[fullName]*entry{}, map[types.UID]*entry{}
	}
	u.holders, u.last = u.last, u.holders
	clear(u.holders)
	clear(u.uids)
	u.want = u.want[:0]

	for _, o := range origins {
		for _, e := range o.entries {
			if u.heldBy(e, o) && u.uids[e.pod.UID] == nil {
				u.give(e)
			}
		}
	}
	u.sole = nil
	for _, o := range origins {
		for _, e := range o.entries {
			switch holder := u.holders[e.key]; {
			case holder == e:
			case holder != nil:
				u.refuse(e, holder, "name")
				continue
			case u.uids[e.pod.UID] != nil:
				u.refuse(e, u.uids[e.pod.UID], "UID")
				continue
			default:
				u.give(e)
			}
			u.want = append(u.want, e)
		}
	}
	return u.want, u.complaints.news()
}

// heldBy reports whether the origin held the full name as of the last merge.
func (u *union) heldBy(e *entry, o *origin) bool {
	if u.sole != nil {
		return u.sole == o
	}
	h := u.last[e.key]
	return h != nil && h.origin == o
}

func (u *union) give(e *entry) {
	u.holders[e.key] = e
	u.uids[e.pod.UID] = e
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
