package podconfig

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// claims decides which of the offered pods are desired. An offer claims its UID and its
// full name. It is granted both or none, and keeps them until it is withdrawn or changes
// its name. The other offers of that UID or name wait.
//
// Offers change in steps: calls of offer and withdraw, then one of settle. What is
// released within a step is granted at its end.
type claims struct {
	byUID  map[types.UID]*offer
	byName map[fullName]*offer
	// waiting are the offers without a grant: new ones and those that wait for another.
	waiting []*offer
	// releasedUIDs and releasedNames are the sources of the offers that have released
	// them in this step. changed are the UIDs whose desired pod may have changed in it.
	releasedUIDs  map[types.UID]*registration
	releasedNames map[fullName]*registration
	changed       []types.UID
}

// claim is the state of an offer in claims.
type claim struct {
	granted bool
	// waiting is true while the offer is in claims.waiting.
	waiting bool
	// heir is true if the offer's source has released its UID or name in this step.
	heir bool
	// lostTo is the UID of the pod that was last reported to have its UID or name.
	lostTo types.UID
}

func newClaims() *claims {
	return &claims{
		byUID: map[types.UID]*offer{}, byName: map[fullName]*offer{},
		releasedUIDs: map[types.UID]*registration{}, releasedNames: map[fullName]*registration{},
	}
}

// desired returns the desired pod of a UID; the zero version if there is none.
func (c *claims) desired(uid types.UID) version {
	if o := c.byUID[uid]; o != nil {
		return o.version
	}
	return version{}
}

// offer makes pod the pod of the offer. Its UID must be that of the last one.
func (c *claims) offer(o *offer, pod *v1.Pod) {
	if o.pod != nil && fullNameOf(o.pod) != fullNameOf(pod) {
		c.release(o)
		o.claim.lostTo = ""
	}
	o.pod = pod
	switch {
	case o.claim.granted:
		c.changed = append(c.changed, pod.UID)
	case !o.claim.waiting:
		o.claim.waiting = true
		c.waiting = append(c.waiting, o)
	}
}

// withdraw ends the offer.
func (c *claims) withdraw(o *offer) {
	c.release(o)
	o.pod = nil
}

func (c *claims) release(o *offer) {
	if !o.claim.granted {
		return
	}
	o.claim.granted = false
	uid, name := o.pod.UID, fullNameOf(o.pod)
	delete(c.byUID, uid)
	delete(c.byName, name)
	c.releasedUIDs[uid], c.releasedNames[name] = o.source, o.source
	c.changed = append(c.changed, uid)
}

// settle ends a step. It grants what is free: first to the source that has released it,
// so that a source can give a pod another UID; then to the source that was registered
// first, and within a source to the pod that was offered first. It returns the UIDs whose
// desired pod may have changed, and the offers that have begun to wait for another pod.
func (c *claims) settle() (changed []types.UID, rejections []rejection) {
	for _, o := range c.waiting {
		o.claim.heir = o.pod != nil && (c.releasedUIDs[o.pod.UID] == o.source || c.releasedNames[fullNameOf(o.pod)] == o.source)
	}
	slices.SortFunc(c.waiting, func(a, b *offer) int {
		if a.claim.heir != b.claim.heir {
			if a.claim.heir {
				return -1
			}
			return 1
		}
		return a.compareOrder(b.version)
	})
	c.waiting = slices.DeleteFunc(c.waiting, func(o *offer) bool {
		if o.pod != nil && !c.grant(o) {
			rejections = append(rejections, c.lost(o)...)
			return false
		}
		o.claim.waiting = false
		return true
	})
	clear(c.releasedUIDs)
	clear(c.releasedNames)
	changed, c.changed = c.changed, nil
	return changed, rejections
}

// grant reports whether the offer's UID and full name were free.
func (c *claims) grant(o *offer) bool {
	uid, name := o.pod.UID, fullNameOf(o.pod)
	if c.byUID[uid] != nil || c.byName[name] != nil {
		return false
	}
	c.byUID[uid], c.byName[name] = o, o
	o.claim.granted = true
	c.changed = append(c.changed, uid)
	return true
}

// lost returns the rejection of an offer that waits, once for each pod that it waits for.
func (c *claims) lost(o *offer) []rejection {
	holder, what := c.byName[fullNameOf(o.pod)], "name"
	if holder == nil {
		holder, what = c.byUID[o.pod.UID], "UID"
	}
	if o.claim.lostTo == holder.pod.UID {
		return nil
	}
	o.claim.lostTo = holder.pod.UID
	return []rejection{{o.source, o.pod, o.source.duplicate(o.pod, holder.version, what)}}
}
