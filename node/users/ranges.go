package users

import (
	"errors"
	"fmt"
	"slices"
)

// Unit is the number that the length of each range is a multiple of, and the number of IDs of the host that no range
// has. It is kubelet's.
const Unit = 65536

// idSpace is the number of IDs.
const idSpace = 1 << 32

// Range are the IDs from First to First+Length-1 of the host.
type Range struct {
	First, Length uint32
}

// end is the ID after the last one.
func (r Range) end() uint64 { return uint64(r.First) + uint64(r.Length) }

func (r Range) overlaps(o Range) bool {
	return uint64(r.First) < o.end() && uint64(o.First) < r.end()
}

func (r Range) String() string { return fmt.Sprintf("%d-%d", r.First, r.end()-1) }

// check returns the error of a range that no pod can have.
func (r Range) check() error {
	switch {
	case r.Length == 0:
		return errors.New("the range has no IDs")
	case r.end() > idSpace:
		return fmt.Errorf("the range of %d IDs from %d on has IDs above %d", r.Length, r.First, uint32(idSpace-1))
	case r.First < Unit:
		return fmt.Errorf("the range %s has IDs below %d, which are those of users of the host", r, Unit)
	default:
		return nil
	}
}

// ErrExhausted means that no range of the pool is free.
var ErrExhausted = errors.New("no range of user IDs is free")

// ConflictError means that a range overlaps with that of another owner.
type ConflictError struct {
	Range, Other Range
	// Owner has Other.
	Owner string
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("the range %s overlaps with %s of pod %s", e.Range, e.Other, e.Owner)
}

// Ranges records which owner has which range of a pool. No two of them overlap. It is not safe for concurrent use.
// Nobody has one in a nil *Ranges.
type Ranges struct {
	pool   Range
	length uint32
	// next is the first ID of the range to try first: a range that was returned is assigned again as late as possible.
	next uint64
	// used are disjoint, and sorted by their first IDs.
	used []usedRange
	of   map[string]Range
}

// usedRange is a range in use. An owner of "" is unknown.
type usedRange struct {
	Range
	owner string
}

// NewRanges returns an empty record of the ranges of a pool, which has the given number of IDs for each owner. The
// limits are those of kubelet: length is a multiple of [Unit], and the first ID and the length of the pool are
// multiples of length.
func NewRanges(pool Range, length uint32) (*Ranges, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case length == 0 || length%Unit != 0:
		wrong("%d IDs for each pod are not a multiple of %d", length, Unit)
	case pool.First < length:
		wrong("the first ID of the pool, %d, is less than %d: lower IDs are those of users of the host", pool.First,
			length)
	case pool.First%length != 0:
		wrong("the first ID of the pool, %d, is not a multiple of %d, the IDs for each pod", pool.First, length)
	}
	switch {
	case pool.end() > idSpace:
		wrong("the pool of %d IDs from %d on has IDs above %d", pool.Length, pool.First, uint32(idSpace-1))
	case length != 0 && (pool.Length == 0 || pool.Length%length != 0):
		wrong("the length of the pool, %d, is not a multiple of %d, the IDs for each pod", pool.Length, length)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Ranges{pool: pool, length: length, next: uint64(pool.First), of: map[string]Range{}}, nil
}

// Size returns how many owners the pool has ranges for.
func (r *Ranges) Size() int { return int(r.pool.Length / r.length) }

// Of returns the range of the owner, if it has one.
func (r *Ranges) Of(owner string) (Range, bool) {
	if r == nil {
		return Range{}, false
	}
	own, ok := r.of[owner]
	return own, ok
}

// Allocate assigns a free range of the pool to an owner that has none. It fails with [ErrExhausted].
func (r *Ranges) Allocate(owner string) (Range, error) {
	if own, ok := r.of[owner]; ok {
		return Range{}, fmt.Errorf("pod %s has the range %s", owner, own)
	}
	free, ok := r.free(r.next, r.pool.end())
	if !ok {
		free, ok = r.free(uint64(r.pool.First), r.next)
	}
	if !ok {
		return Range{}, fmt.Errorf("%w: all %d of the pool %s are in use", ErrExhausted, r.Size(), r.pool)
	}
	if r.next = free.end(); r.next >= r.pool.end() {
		r.next = uint64(r.pool.First)
	}
	r.insert(usedRange{free, owner})
	return free, nil
}

// free returns the first range that overlaps with no used one and begins in [from, until). Both are limits between
// ranges.
func (r *Ranges) free(from, until uint64) (Range, bool) {
	for from < until {
		try := Range{uint32(from), r.length}
		i := r.after(try)
		if i == len(r.used) || !r.used[i].overlaps(try) {
			return try, true
		}
		length, first := uint64(r.length), uint64(r.pool.First)
		from = first + (r.used[i].end()-first+length-1)/length*length // the next limit
	}
	return Range{}, false
}

// after returns the index of the first used range that ends after the start of the range.
func (r *Ranges) after(own Range) int {
	i, _ := slices.BinarySearchFunc(r.used, uint64(own.First), func(c usedRange, first uint64) int {
		if c.end() <= first {
			return -1
		}
		return 1
	})
	return i
}

func (r *Ranges) insert(c usedRange) {
	r.used = slices.Insert(r.used, r.after(c.Range), c)
	if c.owner != "" {
		r.of[c.owner] = c.Range
	}
}

// Assign notes that an owner has the range already. The range may have another length than those of the pool, and lie
// outside. It fails with a [*ConflictError] if another owner has some of it. An owner with another range is an error.
func (r *Ranges) Assign(owner string, own Range) error {
	if err := own.check(); err != nil {
		return err
	}
	if had, ok := r.of[owner]; ok {
		if had == own {
			return nil
		}
		return fmt.Errorf("pod %s has the range %s already, not %s", owner, had, own)
	}
	first := r.after(own)
	last := first
	for ; last < len(r.used) && r.used[last].overlaps(own); last++ {
		if c := r.used[last]; c.owner != "" {
			return &ConflictError{Range: own, Other: c.Range, Owner: c.owner}
		}
	}
	unknown := slices.Clone(r.used[first:last]) // the owner is known now
	r.used = slices.Delete(r.used, first, last)
	r.insert(usedRange{own, owner})
	for _, c := range unknown {
		r.Reserve(c.Range)
	}
	return nil
}

// Reserve notes that a range is in use, by whoever it is. Parts of it that have an owner stay with that owner.
// Allocate does not return it until it is assigned to an owner and released.
func (r *Ranges) Reserve(used Range) {
	from := uint64(used.First)
	reserve := func(until uint64) {
		if from < until {
			r.insert(usedRange{Range: Range{uint32(from), uint32(until - from)}})
		}
	}
	for {
		rest := Range{uint32(from), uint32(used.end() - from)}
		if rest.Length == 0 {
			return
		}
		i := r.after(rest)
		if i == len(r.used) || !r.used[i].overlaps(rest) {
			reserve(used.end())
			return
		}
		c := r.used[i]
		reserve(uint64(c.First))
		if from = c.end(); from >= used.end() {
			return
		}
	}
}

// Release returns the range of an owner. It reports whether the owner had one.
func (r *Ranges) Release(owner string) bool {
	own, ok := r.Of(owner)
	if !ok {
		return false
	}
	delete(r.of, owner)
	i := r.after(own)
	r.used = slices.Delete(r.used, i, i+1)
	return true
}
