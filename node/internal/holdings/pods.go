package holdings

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// pods are the pods of a file of holdings. It makes no calls, and a [Record] guards it. The zero value is that of an
// empty file.
type pods struct {
	// earlier are the pods that an earlier agent has left in the file, and that this one has neither admitted nor
	// released.
	earlier set
	// read means that the file is read. Until then, ended are the pods that were released.
	read  bool
	ended set
	// suspended is why nothing is given; nil if the file can be used.
	suspended error
	// unfit are the pods that have to end until something is given again. It is empty if the file can be used, and if
	// its content is not known.
	unfit set
	// goOn are the pods that were admitted without an allocation, because they ran while nothing was given.
	goOn set
}

type set map[types.UID]struct{}

func (s *set) add(uid types.UID) {
	if *s == nil {
		*s = set{}
	}
	(*s)[uid] = struct{}{}
}

func (s set) has(uid types.UID) bool { _, ok := s[uid]; return ok }

func (s set) list() []types.UID { return slices.Sorted(maps.Keys(s)) }

// restore notes a pod of the file. It reports false if the pod was released before the file was read.
func (p *pods) restore(uid types.UID) bool {
	if p.ended.has(uid) {
		return false
	}
	p.earlier.add(uid)
	return true
}

// suspend has nothing given until the pods have ended. Without pods it is for good.
func (p *pods) suspend(err error, unfit []types.UID) {
	p.suspended, p.unfit = err, nil
	for _, uid := range unfit {
		if p.restore(uid) {
			p.unfit.add(uid)
		}
	}
	if len(unfit) > 0 && len(p.unfit) == 0 {
		p.suspended = nil
	}
}

// known reports whether the pod is in the file, or goes on without an allocation.
func (p *pods) known(uid types.UID) bool {
	return p.earlier.has(uid) || p.unfit.has(uid) || p.goOn.has(uid)
}

// admit has the pod be one of this agent. running means that it runs already. goesOn means that it needs no allocation.
func (p *pods) admit(uid types.UID, running bool) (goesOn bool, err error) {
	if p.suspended == nil {
		delete(p.earlier, uid)
		return false, nil
	}
	if !running && !p.known(uid) {
		return false, p.suspended
	}
	delete(p.earlier, uid)
	p.goOn.add(uid)
	return true, nil
}

// release forgets the pod. It reports whether that ends a suspension.
func (p *pods) release(uid types.UID) (resumed bool) {
	if !p.read {
		p.ended.add(uid)
	}
	last := len(p.unfit) == 1 && p.unfit.has(uid)
	delete(p.earlier, uid)
	delete(p.unfit, uid)
	delete(p.goOn, uid)
	if last {
		p.suspended = nil
	}
	return last
}
