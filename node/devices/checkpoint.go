package devices

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	kubelet "github.com/kubeletkit/kubeletkit/node/devices/internal/checkpoint"
	"github.com/kubeletkit/kubeletkit/node/internal/checkpoint"
	"github.com/kubeletkit/kubeletkit/node/placement/numa"
)

const (
	// maxCheckpoint is the size of the largest checkpoint, in bytes: that of some 10^4 containers with their answers.
	// kubelet has no limit.
	maxCheckpoint = checkpoint.MaxSize
	// maxAnswer is the size of the largest answer of a provider for one container. A message of gRPC has 4 MiB.
	maxAnswer = 256 << 10
)

// maxRegistered is the number of healthy devices of a resource up to which they are in the checkpoint. kubelet reads
// the name of the resource only.
const maxRegistered = 1 << 12

// noNode is the node of devices that are near to none, in the checkpoint.
const noNode = -1

// load takes over the checkpoint. The error is that of the disk: until there is none, nobody gets devices, and nothing
// is written. Of one whose checksum is wrong, the pods keep their devices, and the answers of the providers are not
// used. One that cannot be decoded is kept aside.
func (m *Manager) load() error {
	var entries []kubelet.PodDevicesEntry
	var registered map[string][]string
	wrong := false
	parse := func(content []byte) (err error) {
		entries, registered, err = kubelet.Unmarshal(content)
		switch wrong = errors.Is(err, kubelet.ErrChecksum); {
		case wrong:
			aside := m.path + ".damaged"
			m.log.Error(errors.Join(err, safefile.Write(aside, content)), "The checkpoint of the devices is "+
				"damaged, or from a later kubelet. Pods keep their devices, and their providers are asked again "+
				"before containers are started",
				"path", m.path, "copiedTo", aside)
		case err != nil:
			aside, renameErr := checkpoint.SetAside(m.path)
			m.log.Error(errors.Join(err, renameErr), "The checkpoint of the devices cannot be used. "+
				"Containers that run keep their devices, and other pods may get the same ones: restart pods with devices",
				"path", m.path, "keptAt", aside)
		}
		return nil
	}
	if m.path != "" {
		err := error(nil)
		if m.opts.Lock != nil {
			err = m.opts.Lock()
		}
		if err == nil {
			err = checkpoint.Read(&m.held.Reader, m.path, maxCheckpoint, parse)
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf(
				"pods that request extended resources wait until the checkpoint of devices can be read: %w", err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range registered {
		m.restorePool(v1.ResourceName(name))
	}
	for _, e := range entries {
		if err := m.restore(e, wrong); err != nil {
			m.log.Error(err, "An entry in the checkpoint of the devices cannot be used", "path", m.path,
				"pod", e.PodUID, "container", e.ContainerName, "resource", e.ResourceName)
		}
	}
	if wrong {
		m.held.Changed()
	}
	return nil
}

func (m *Manager) restorePool(name v1.ResourceName) {
	if p := m.pool(name); p.lost.IsZero() {
		p.lost = time.Now()
	}
}

// restore adds an entry of the checkpoint to the state. Without its answer, or if that is wrong, the container keeps
// the devices, and the provider is asked again.
func (m *Manager) restore(e kubelet.PodDevicesEntry, wrong bool) error {
	if e.PodUID == "" || e.ContainerName == "" || e.ResourceName == "" {
		return errors.New("it has no pod, container or resource")
	}
	uid, name := types.UID(e.PodUID), v1.ResourceName(e.ResourceName)
	if m.allocation(uid, e.ContainerName, name) != nil {
		return errors.New("there is another one for the same container and resource")
	}
	if !m.held.Earlier(uid) {
		return nil
	}
	g := &allocation{nodes: map[string]numa.Nodes{}, held: true}
	var err error
	if e.AllocResp != nil && !wrong {
		if g.edits, err = kubelet.Decode(e.AllocResp); err == nil {
			g.allocated, g.message = true, e.AllocResp
		}
	}
	for node, ids := range e.DeviceIDs {
		for _, id := range ids {
			near := numa.Nodes(0)
			if 0 <= node && node < numa.MaxNodes {
				near = numa.Of(int(node))
			}
			g.nodes[id] |= near
		}
	}
	g.ids = slices.Sorted(maps.Keys(g.nodes))
	m.restorePool(name)
	m.give(uid, e.ContainerName, name, g)
	return err
}

// entries returns what the checkpoint has. mu is held.
func (m *Manager) entries() (entries []kubelet.PodDevicesEntry, registered map[string][]string) {
	for uid, pod := range m.pods {
		for container, allocations := range pod.allocations {
			for name, g := range allocations {
				if !g.allocated && !g.held {
					continue
				}
				devices := kubelet.DevicesPerNUMA{}
				for _, id := range g.ids {
					if g.nodes[id] == 0 {
						devices[noNode] = append(devices[noNode], id)
					}
					for node := range g.nodes[id].All() {
						devices[int64(node)] = append(devices[int64(node)], id)
					}
				}
				entries = append(entries, kubelet.PodDevicesEntry{
					PodUID: string(uid), ContainerName: container, ResourceName: string(name), DeviceIDs: devices,
					AllocResp: g.message,
				})
			}
		}
	}
	slices.SortFunc(entries, func(a, b kubelet.PodDevicesEntry) int {
		return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.ContainerName, b.ContainerName),
			cmp.Compare(a.ResourceName, b.ResourceName))
	})
	registered = map[string][]string{}
	for name, p := range m.pools {
		if p.devices == nil && p.lost.IsZero() { // there has been no provider yet
			continue
		}
		if len(p.servers) > 0 || time.Since(p.lost) <= LostGrace || len(p.owners) > 0 || len(p.waiting) > 0 {
			registered[string(name)] = append([]string{}, p.healthy[:min(len(p.healthy), maxRegistered)]...)
		}
	}
	return entries, registered
}

// content returns the content of the checkpoint.
func (m *Manager) content() ([]byte, error) {
	if m.path == "" {
		return nil, nil
	}
	m.mu.Lock()
	entries, registered := m.entries()
	m.mu.Unlock()
	content, err := kubelet.Marshal(entries, registered)
	if err == nil && len(content) > maxCheckpoint {
		err = errTooLarge
	}
	return content, err
}

var errTooLarge = fmt.Errorf("the checkpoint of devices would have more than %d MiB: end pods with devices, or have "+
	"the provider return less for a container", maxCheckpoint>>20)

// size is the size of what the checkpoint has of the allocations, about. mu is held.
func (m *Manager) size() (sum int) {
	for _, pod := range m.pods {
		for _, allocations := range pod.allocations {
			for _, g := range allocations {
				if g.allocated || g.held {
					sum += 512 + base64.StdEncoding.EncodedLen(len(g.message))
					for _, id := range g.ids {
						sum += len(id) + 3
					}
				}
			}
		}
	}
	return sum
}
