package devices

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/node/internal/reuse"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
	"github.com/kubeletkit/kubeletkit/runtime"
	"github.com/kubeletkit/kubeletkit/runtime/podspec"
)

// state is which devices there are, and who has them. It calls nobody, and a [Manager] guards it.
type state struct {
	pools map[v1.ResourceName]*pool
	pods  map[types.UID]*podDevices
}

// pool is the devices of one resource.
type pool struct {
	// servers are the providers that are served, in the order in which they came. server is the last one of them that
	// has delivered its devices; nil while none has.
	servers []*server
	server  *server
	// last is server, or the one before. It prepares the starts of containers, or returns the error that it is gone.
	last *server
	// lost is when there was a server for the last time; zero if there was none.
	lost time.Time
	// devices is the last list of server. It stays when the provider ends. It is replaced as a whole, and never
	// changed.
	devices map[string]Device
	// healthy has the IDs of the devices that can be given, sorted. It is empty while servers is. It is replaced as a
	// whole, and never changed.
	healthy []string
	// owners are the pods that have devices, one entry for each container.
	owners map[string][]types.UID
	// waiting are the pods that wait until the devices change or another pod releases one.
	waiting map[types.UID]struct{}
}

// podDevices is what a pod has.
type podDevices struct {
	// allocations are the devices of the containers by their names.
	allocations map[string]map[v1.ResourceName]*allocation
	// near are the nodes of the hints of containers, near to which devices are chosen that are not made ready yet.
	near map[string]numa.Nodes
	// again are the containers that were to be started without having been made ready.
	again map[string]bool
	// checked means that the devices were healthy before the first container was started, or that one runs already.
	checked bool
}

// allocation is the devices of one resource that a container has.
type allocation struct {
	// ids is sorted. nodes are those of the devices when they were given.
	ids   []string
	nodes map[string]numa.Nodes
	// allocated means that the provider has made the devices ready, with these edits. Such allocations are in the
	// checkpoint. message is the answer of the provider as the checkpoint has it.
	allocated bool
	// held means that an earlier agent gave the devices. They are in the checkpoint, and are not exchanged, also if its
	// answer is not known.
	held    bool
	edits   runtime.ContainerEdits
	message []byte
}

func newState() state {
	return state{pools: map[v1.ResourceName]*pool{}, pods: map[types.UID]*podDevices{}}
}

// pool returns the pool of the resource, a new one if there is none.
func (s *state) pool(name v1.ResourceName) *pool {
	p := s.pools[name]
	if p == nil {
		p = &pool{owners: map[string][]types.UID{}, waiting: map[types.UID]struct{}{}}
		s.pools[name] = p
	}
	return p
}

// pod returns the devices of the pod, a new value if there is none.
func (s *state) pod(uid types.UID) *podDevices {
	p := s.pods[uid]
	if p == nil {
		p = &podDevices{allocations: map[string]map[v1.ResourceName]*allocation{}, near: map[string]numa.Nodes{},
			again: map[string]bool{}}
		s.pods[uid] = p
	}
	return p
}

// allocation returns what the container has of the resource, or nil.
func (s *state) allocation(uid types.UID, container string, name v1.ResourceName) *allocation {
	if p := s.pods[uid]; p != nil {
		return p.allocations[container][name]
	}
	return nil
}

// give adds devices to those of a container, which has none of the resource.
func (s *state) give(uid types.UID, container string, name v1.ResourceName, g *allocation) {
	pod, pool := s.pod(uid), s.pool(name)
	if pod.allocations[container] == nil {
		pod.allocations[container] = map[v1.ResourceName]*allocation{}
	}
	pod.allocations[container][name] = g
	for _, id := range g.ids {
		pool.owners[id] = append(pool.owners[id], uid)
	}
}

// take takes the devices of an allocation of the pod back.
func (s *state) take(uid types.UID, container string, name v1.ResourceName) {
	g := s.allocation(uid, container, name)
	if g == nil {
		return
	}
	pool := s.pool(name)
	for _, id := range g.ids {
		pool.disown(id, uid)
	}
	delete(s.pods[uid].allocations[container], name)
}

func (p *pool) disown(id string, uid types.UID) {
	owners := p.owners[id]
	if i := slices.Index(owners, uid); i >= 0 {
		owners = slices.Delete(owners, i, i+1)
	}
	if len(owners) == 0 {
		delete(p.owners, id)
	} else {
		p.owners[id] = owners
	}
}

// release takes back what the pod has. It reports whether the checkpoint changes, and returns the pods that wait for
// devices such as this one had: they wait no longer.
func (s *state) release(uid types.UID) (saved bool, waited map[types.UID]struct{}) {
	pod := s.pods[uid]
	if pod == nil {
		return false, nil
	}
	for _, p := range s.pools {
		delete(p.waiting, uid)
	}
	waited = map[types.UID]struct{}{}
	for container, allocations := range pod.allocations {
		for name, g := range allocations {
			saved = saved || g.allocated || g.held
			s.take(uid, container, name)
			if p := s.pools[name]; p.serving() && slices.ContainsFunc(g.ids, p.usable) {
				maps.Copy(waited, p.waiting)
				clear(p.waiting)
			}
		}
	}
	delete(s.pods, uid)
	return saved, waited
}

// serving reports whether the pool can give devices.
func (p *pool) serving() bool { return p != nil && p.server != nil }

// free returns the healthy devices that nobody has, and of those of an allocation that can be exchanged. It is sorted.
func (p *pool) free(own []string) []string {
	out := make([]string, 0, min(len(p.healthy), 64))
	for _, id := range p.healthy {
		if len(p.owners[id]) == 0 || slices.Contains(own, id) {
			out = append(out, id)
		}
	}
	return out
}

func (p *pool) nodesOf(id string) numa.Nodes { return p.devices[id].Nodes }

// nodes returns a function that has the nodes of the devices as they are now. It needs no lock: maps of devices do not
// change.
func (p *pool) nodes() func(id string) numa.Nodes {
	devices := p.devices
	return func(id string) numa.Nodes { return devices[id].Nodes }
}

// reusable returns the devices of the resource that init containers before the container have had and it can have, too.
// As with kubelet, the devices of init containers are used again, those of sidecars and of main containers are not.
func (s *state) reusable(pod *v1.Pod, container string, name v1.ResourceName) []string {
	return reuse.Units(&pod.Spec, container, func(other string) []string {
		if g := s.allocation(pod.UID, other, name); g != nil {
			return g.ids
		}
		return nil
	})
}

// shortage is why a container cannot have devices. The text is that of kubelet.
type shortage struct{ text string }

func (e *shortage) Error() string { return e.text }

// allocate gives the container devices of the resource, near the nodes. The pool serves. The error is a *shortage.
func (s *state) allocate(pod *v1.Pod, container string, name v1.ResourceName, count int64, near numa.Nodes) error {
	p := s.pool(name)
	if len(p.healthy) == 0 {
		return &shortage{fmt.Sprintf("no healthy devices present; cannot allocate unhealthy devices %s", name)}
	}
	reuse := s.reusable(pod, container, name)
	free := p.free(nil)
	missing := count - int64(len(reuse))
	if missing > int64(len(free)) {
		return &shortage{fmt.Sprintf("requested number of devices unavailable for %s. Requested: %d, Available: %d",
			name, missing, len(free))}
	}
	ids, _ := choice{count: int(count), reuse: reuse, free: free, near: near, nodes: p.nodes()}.pick(nil)
	s.give(pod.UID, container, name, p.newAllocation(ids))
	return nil
}

func (p *pool) newAllocation(ids []string) *allocation {
	g := &allocation{ids: ids, nodes: make(map[string]numa.Nodes, len(ids))}
	for _, id := range ids {
		g.nodes[id] = p.nodesOf(id)
	}
	return g
}

// inventory is the devices of a provider.
type inventory struct {
	devices map[string]Device
	healthy []string // sorted
	// bad is the number of devices that are left out: their IDs are empty, too long or no text, or the same as that of
	// a later one.
	bad int
}

// maxID is the length of the longest ID. IDs are in the status of pods.
const maxID = 1 << 10

// newInventory returns the devices of the list. Nodes that the machine does not have are left out, unless machine is
// the empty set.
func newInventory(list []Device, machine numa.Nodes) inventory {
	inv := inventory{devices: make(map[string]Device, len(list))}
	for _, d := range list {
		_, again := inv.devices[d.ID]
		if machine != 0 {
			d.Nodes &= machine
		}
		usable := d.ID != "" && len(d.ID) <= maxID && utf8.ValidString(d.ID)
		if again || !usable {
			inv.bad++
		}
		if usable {
			inv.devices[d.ID] = d
		}
	}
	for id, d := range inv.devices {
		if !d.Unhealthy {
			inv.healthy = append(inv.healthy, id)
		}
	}
	slices.Sort(inv.healthy)
	return inv
}

// elect makes the last provider that has delivered its devices the server of the pool. It returns the pods whose
// devices have another health, those that waited for devices, and whether the numbers of devices have changed.
func (p *pool) elect() (affected, waited map[types.UID]struct{}, counted bool) {
	i := len(p.servers) - 1
	for i >= 0 && p.servers[i].list == nil {
		i--
	}
	if i < 0 {
		p.server, p.lost = nil, time.Now()
		if len(p.servers) > 0 { // the node has the devices until the list of another one comes
			return nil, nil, false
		}
		p.healthy = nil
		return nil, nil, true
	}
	now := p.servers[i].list
	affected, waited = map[types.UID]struct{}{}, p.waiting
	for id, owners := range p.owners {
		was, had := p.devices[id]
		is, has := now.devices[id]
		if had != has || was.Unhealthy != is.Unhealthy {
			for _, uid := range owners {
				affected[uid] = struct{}{}
			}
		}
	}
	counted = p.server == nil || len(p.devices) != len(now.devices) || len(p.healthy) != len(now.healthy)
	p.devices, p.healthy, p.waiting = now.devices, now.healthy, map[types.UID]struct{}{}
	p.server, p.last = p.servers[i], p.servers[i]
	return affected, waited, counted
}

// request is what a container requests of one resource.
type request struct {
	name  v1.ResourceName
	count int64
}

// requests returns what the container requests of resources that have a pool, in the order of their names. Resources
// that the pod has by DRA are left out.
func (s *state) requests(pod *v1.Pod, c *v1.Container) (out []request) {
	for name, q := range c.Resources.Limits {
		if s.pools[name] == nil || byDRA(pod, c.Name, name) {
			continue
		}
		if n := q.Value(); n > 0 {
			out = append(out, request{name, n})
		}
	}
	slices.SortFunc(out, func(a, b request) int { return cmp.Compare(a.name, b.name) })
	return out
}

// byDRA reports whether the scheduler has backed the resource of the container by a claim (KEP-5004).
func byDRA(pod *v1.Pod, container string, name v1.ResourceName) bool {
	claim := pod.Status.ExtendedResourceClaimStatus
	return claim != nil && slices.ContainsFunc(claim.RequestMappings, func(m v1.ContainerExtendedResourceRequest) bool {
		return m.ContainerName == container && m.ResourceName == string(name)
	})
}

// extended reports whether a container of the pod requests an extended resource.
func extended(pod *v1.Pod) bool {
	for kind, c := range podspec.Containers(&pod.Spec) {
		if kind != podspec.EphemeralContainer && len(c.Resources.Limits) > 0 {
			for name := range c.Resources.Limits {
				if podspec.IsExtendedResource(name) {
					return true
				}
			}
		}
	}
	return false
}
