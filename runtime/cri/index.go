package cri

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// index has the IDs of the sandboxes and containers of each pod. With them an inspection
// calls only for what the pod has. A list of one pod would cost the runtime as much as a
// list of all: containerd filters after it has listed everything.
//
// IDs come from lists, from the calls that create something, and from events. An ID is
// dropped when its item was removed, when the runtime does not find it, and when a list does
// not have it. An ID of something that is gone costs one call. One that is missing makes a
// status wrong. So the index is complete for a pod only while there is an event stream, which
// shows what other clients of the runtime create, and after a list that has begun since the
// stream was established and since the last call failed that may have created something.
//
// The zero value is empty. It is safe for concurrent use.
type index struct {
	mu sync.Mutex
	// last numbers what happens to the index: lists begin, items are created, streams are
	// established.
	last uint64
	// streams is the number of established event streams. established is the number of the
	// last one.
	streams     int
	established uint64
	// listed is the number of the last list of all pods, 0 before the first.
	listed uint64
	// pods has an entry for each pod that has something, or may have.
	pods map[types.UID]*podIndex
	// sandboxes and containers are those of all pods, by ID. An ID belongs to the first pod
	// that has it.
	sandboxes  map[string]*sandboxItem
	containers map[string]*containerItem
}

// podIndex has the sandboxes and containers of a pod.
type podIndex struct {
	// listed is the number of the last list of this pod, doubted of the last failed call that
	// may have created something. Each is 0 if there was none.
	listed, doubted uint64
	sandboxes       []*sandboxItem
	containers      []*containerItem
}

// podItems are the sandboxes and containers of a pod at one moment.
type podItems struct {
	sandboxes  []sandboxItem
	containers []containerItem
}

// sandboxItem is a sandbox in the index.
type sandboxItem struct {
	pod types.UID
	id  string
	// since is the number of the last event that has shown it.
	since uint64
	// ready means that it was ready once.
	ready bool
	// status is the last one that can be used again, or nil. Of a ready sandbox with addresses
	// only the state changes, which a list has. A sandbox that is not ready any more does not
	// change.
	status *runtime.SandboxStatus
}

// containerItem is a container in the index.
type containerItem struct {
	pod                 types.UID
	id, name, sandboxID string
	since               uint64
	// dead is its status since it has exited: that does not change again, unless a list shows
	// otherwise.
	dead *inspectedContainer
}

// inspectedContainer is the status of a container, with the attempt by which the instances
// of one name are sorted.
type inspectedContainer struct {
	runtime.ContainerStatus
	attempt uint32
}

// of returns the items of a pod. complete is false if there may be others.
func (x *index) of(uid types.UID) (items podItems, complete bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	listed, doubted := x.listed, x.established
	if p := x.pods[uid]; p != nil {
		items, listed, doubted = p.items(0), max(listed, p.listed), max(doubted, p.doubted)
	}
	return items, x.streams > 0 && listed > doubted
}

// items returns the items, with the statuses that need not be read again after a list, or
// without one if list is 0.
func (p *podIndex) items(list uint64) podItems {
	items := podItems{make([]sandboxItem, len(p.sandboxes)), make([]containerItem, len(p.containers))}
	for i, s := range p.sandboxes {
		items.sandboxes[i] = *s
		if s.status != nil && s.status.State == runtime.SandboxReady && s.since != list {
			items.sandboxes[i].status = nil
		}
	}
	for i, c := range p.containers {
		items.containers[i] = *c
	}
	return items
}

// streamBegan notes that an event stream is established.
func (x *index) streamBegan() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last++
	x.streams++
	x.established = x.last
}

// streamEnded notes the end of an event stream that was established.
func (x *index) streamEnded() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.streams--
}

// watched reports whether there is an event stream.
func (x *index) watched() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.streams > 0
}

// begin notes that a list begins, and returns its number.
func (x *index) begin() (list uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last++
	return x.last
}

// listedAll takes a list of all pods.
func (x *index) listedAll(pods []*runtime.Pod, list uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.listed = max(x.listed, list)
	for _, pod := range pods {
		x.add(pod, list)
	}
	for uid, p := range x.pods {
		x.keep(uid, p, list)
	}
}

// listedPod takes a list of one pod, and returns its items.
func (x *index) listedPod(pod *runtime.Pod, list uint64) podItems {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.add(pod, list)
	x.keep(pod.UID, p, list)
	return p.items(list)
}

// add adds what a list has of a pod.
func (x *index) add(pod *runtime.Pod, list uint64) *podIndex {
	p := x.pod(pod.UID)
	for i := range pod.Sandboxes {
		s, state := x.sandbox(pod.UID, pod.Sandboxes[i].ID), pod.Sandboxes[i].State
		s.since, s.ready = max(s.since, list), s.ready || state == runtime.SandboxReady
		if s.status != nil && s.status.State != state {
			s.status = nil
		}
	}
	for i := range pod.Containers {
		listed := &pod.Containers[i]
		c := x.container(pod.UID, listed.ID.ID)
		c.since, c.name, c.sandboxID = max(c.since, list), listed.Name, listed.SandboxID
		if listed.State != runtime.ContainerExited {
			c.dead = nil
		}
	}
	return p
}

// keep drops those items of a pod that a list does not have although they were there
// before.
func (x *index) keep(uid types.UID, p *podIndex, list uint64) {
	p.listed = max(p.listed, list)
	x.drop(uid, p, func(s *sandboxItem) bool { return s.since < list },
		func(c *containerItem) bool { return c.since < list })
}

// addSandbox adds a sandbox that was created. ready is false if it may not be ready yet.
func (x *index) addSandbox(uid types.UID, id string, ready bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last++
	s := x.sandbox(uid, id)
	s.since, s.ready = x.last, s.ready || ready
}

// addContainer adds a container that was created.
func (x *index) addContainer(uid types.UID, id, name, sandboxID string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last++
	c := x.container(uid, id)
	c.since, c.name, c.sandboxID = x.last, name, sandboxID
}

// doubt notes that the pod may have items that are not known.
func (x *index) doubt(uid types.UID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last++
	x.pod(uid).doubted = x.last
}

// removed drops a container, or a sandbox with its containers, that was removed.
func (x *index) removed(id string) {
	x.dropID(id, func(c *containerItem) bool { return c.sandboxID == id })
}

// notFound drops a container, or a sandbox alone, that the runtime does not find.
func (x *index) notFound(id string) {
	x.dropID(id, func(*containerItem) bool { return false })
}

// dropID drops the container with the ID, or the sandbox and those containers of its pod that
// container selects.
func (x *index) dropID(id string, container func(*containerItem) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.containers[id]; c != nil {
		x.drop(c.pod, x.pods[c.pod], func(*sandboxItem) bool { return false },
			func(c *containerItem) bool { return c.id == id })
	}
	if s := x.sandboxes[id]; s != nil {
		x.drop(s.pod, x.pods[s.pod], func(s *sandboxItem) bool { return s.id == id }, container)
	}
}

// drop drops the selected items of a pod, and its entry if nothing is left.
func (x *index) drop(uid types.UID, p *podIndex, sandbox func(*sandboxItem) bool, container func(*containerItem) bool) {
	p.sandboxes = slices.DeleteFunc(p.sandboxes, func(s *sandboxItem) bool {
		drop := sandbox(s)
		if drop {
			delete(x.sandboxes, s.id)
		}
		return drop
	})
	p.containers = slices.DeleteFunc(p.containers, func(c *containerItem) bool {
		drop := container(c)
		if drop {
			delete(x.containers, c.id)
		}
		return drop
	})
	if len(p.sandboxes) == 0 && len(p.containers) == 0 && p.doubted <= max(p.listed, x.listed) {
		delete(x.pods, uid)
	}
}

// has reports whether the ID is in the index.
func (x *index) has(id string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.sandboxes[id] != nil || x.containers[id] != nil
}

// sawSandbox takes the status of a sandbox.
func (x *index) sawSandbox(status *runtime.SandboxStatus) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := x.sandboxes[status.ID]
	if s == nil { // removed meanwhile
		return
	}
	switch ready := status.State == runtime.SandboxReady; {
	case s.status != nil && s.status.State != runtime.SandboxReady: // which does not change
	case ready && len(status.IPs) == 0 && !status.HostNetwork:
		s.ready = true
	case !ready && !s.ready: // it may not be ready yet
	default:
		s.ready, s.status = true, status
	}
}

// sawContainer takes the status of a container.
func (x *index) sawContainer(status *inspectedContainer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.containers[status.ID.ID]; c != nil && status.State == runtime.ContainerExited {
		c.dead = status
	}
}

// pod returns the entry of the pod. It adds one if there is none.
func (x *index) pod(uid types.UID) *podIndex {
	p := x.pods[uid]
	if p == nil {
		if x.pods == nil {
			x.pods, x.sandboxes, x.containers = map[types.UID]*podIndex{}, map[string]*sandboxItem{},
				map[string]*containerItem{}
		}
		p = &podIndex{}
		x.pods[uid] = p
	}
	return p
}

// sandbox returns the item of the sandbox. It adds one to the pod if there is none.
func (x *index) sandbox(uid types.UID, id string) *sandboxItem {
	p, s := x.pod(uid), x.sandboxes[id]
	if s == nil {
		s = &sandboxItem{pod: uid, id: id}
		x.sandboxes[id], p.sandboxes = s, append(p.sandboxes, s)
	}
	return s
}

// container returns the item of the container. It adds one to the pod if there is none.
func (x *index) container(uid types.UID, id string) *containerItem {
	p, c := x.pod(uid), x.containers[id]
	if c == nil {
		c = &containerItem{pod: uid, id: id}
		x.containers[id], p.containers = c, append(p.containers, c)
	}
	return c
}
