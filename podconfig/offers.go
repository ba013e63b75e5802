package podconfig

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// offers decides which of the offered pods are desired. An offer claims its UID and its
// full name. It is granted both or none, and keeps them until it is withdrawn or changes
// its name. The other offers of that UID or name wait.
//
// Offers change in steps: calls of offer and withdraw, then one of settle. What is
// released within a step is granted at its end.
type offers struct {
	byUID  map[types.UID]*uidState
	byName map[fullName]*offer
	// waiting are the offers without a grant: new ones and those that wait for another.
	waiting []*offer
	// released are the grants that ended in this step. changed are the UIDs whose desired
	// pod may have changed in it.
	released []grant
	changed  []*uidState
}

// grant is the UID and full name that an offer has been granted.
type grant struct {
	source *registration
	uid    types.UID
	name   fullName
}

// offerState is the state of an offer in offers.
type offerState struct {
	// granted is the state of the UID while the offer has been granted it, otherwise nil.
	granted *uidState
	// waiting is true while the offer is in offers.waiting.
	waiting bool
	// lost is the last report that another pod has its UID or name. It is nil if there was none.
	lost *loss
}

// loss is the report that the pod of the UID holder has the UID or name of an offer.
type loss struct {
	holder types.UID
	Rejection
}

func newOffers() *offers {
	return &offers{byUID: map[types.UID]*uidState{}, byName: map[fullName]*offer{}}
}

// offer makes pod the pod of the offer. Its UID must be that of the last one.
func (c *offers) offer(o *offer, pod *v1.Pod) {
	if name := fullNameOf(pod); name != o.name {
		c.release(o)
		o.state.lost = nil
		o.name = name
	}
	compared := o.compared()
	o.pod = pod
	switch {
	case o.state.granted != nil:
		if compared { // otherwise the UID is in changed already, or still in merger.pending
			c.changed = append(c.changed, o.state.granted)
		}
	case !o.state.waiting:
		o.state.waiting = true
		c.waiting = append(c.waiting, o)
	}
}

// withdraw ends the offer.
func (c *offers) withdraw(o *offer) {
	if o.state.granted != nil && o.pod.DeletionTimestamp != nil {
		o.withdrawn = o.current()
	}
	c.release(o)
	o.given, o.pod, o.version = nil, nil, nil
}

// named returns the offers of the source that have the full name.
func (c *offers) named(source *registration, name fullName) []*offer {
	var offers []*offer
	if o := c.byName[name]; o != nil && o.source == source {
		offers = append(offers, o)
	}
	for _, o := range c.waiting {
		if o.pod != nil && o.state.granted == nil && o.source == source && o.name == name {
			offers = append(offers, o)
		}
	}
	return offers
}

func (c *offers) release(o *offer) {
	state := o.state.granted
	if state == nil {
		return
	}
	o.state.granted, state.desired = nil, nil
	delete(c.byName, o.name)
	c.released = append(c.released, grant{o.source, state.uid, o.name})
	c.changed = append(c.changed, state)
}

// settle ends a step. It grants what is free: first to the source that has released it,
// so that a source can give a pod another UID; then to the source that was registered
// first, and within a source to the pod that was offered first. It returns the UIDs whose
// desired pod may have changed, and the offers that have begun to wait for another pod.
func (c *offers) settle() (changed []*uidState, rejections []rejection) {
	slices.SortFunc(c.waiting, (*offer).compareOrder)
	c.inherit()
	c.waiting = slices.DeleteFunc(c.waiting, func(o *offer) bool {
		if o.pod != nil && o.state.granted == nil && !c.grant(o) {
			rejections = append(rejections, c.lost(o)...)
			return false
		}
		o.state.waiting = false
		return true
	})
	changed, c.changed = c.changed, c.changed[:0]
	return changed, rejections
}

// inherit grants what was released in this step to waiting offers of the same source.
func (c *offers) inherit() {
	if len(c.released) == 0 {
		return
	}
	if len(c.waiting) > 0 {
		uids, names := map[types.UID]*registration{}, map[fullName]*registration{}
		for _, g := range c.released {
			uids[g.uid], names[g.name] = g.source, g.source
		}
		for _, o := range c.waiting {
			if o.pod != nil && (uids[o.pod.UID] == o.source || names[o.name] == o.source) {
				c.grant(o)
			}
		}
	}
	clear(c.released)
	c.released = c.released[:0]
}

// grant reports whether the offer's UID and full name were free.
func (c *offers) grant(o *offer) bool {
	uid := o.pod.UID
	if s := c.byUID[uid]; s != nil && s.desired != nil || c.byName[o.name] != nil {
		return false
	}
	state := c.state(uid)
	if d := state.delivered; d != nil {
		d.offer.withdrawn = nil
	}
	o.state.granted, state.desired, c.byName[o.name] = state, o, o
	c.changed = append(c.changed, state)
	return true
}

// state returns the state of the UID, and makes it if there is none.
func (c *offers) state(uid types.UID) *uidState {
	s := c.byUID[uid]
	if s == nil {
		s = &uidState{uid: uid}
		c.byUID[uid] = s
	}
	return s
}

// lost returns the rejection of an offer that waits, once for each pod that it waits for.
func (c *offers) lost(o *offer) []rejection {
	holder, what := c.byName[o.name], "name"
	if holder == nil {
		holder, what = c.byUID[o.pod.UID].desired, "UID"
	}
	if l := o.state.lost; l != nil && l.holder == holder.pod.UID {
		return nil
	}
	err := o.source.duplicate(o.pod, holder, what)
	o.state.lost = &loss{holder.pod.UID, Rejection{Pod: runtime.RefOf(o.pod), Err: err, Since: time.Now()}}
	return []rejection{{o.source, o.pod, err}}
}

// losers returns the offers of the source that wait for another pod.
func (c *offers) losers(source *registration) (all []Rejection) {
	for _, o := range c.waiting {
		if o.source == source && o.pod != nil && o.state.granted == nil && o.state.lost != nil {
			all = append(all, o.state.lost.Rejection)
		}
	}
	return all
}
