package devices

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
	"github.com/kubeletkit/kubeletkit/resources/devices/internal/checkpoint"
	"github.com/kubeletkit/kubeletkit/resources/numa"
)

// maxCheckpoint is the size of the largest checkpoint that is read, in bytes: that of some 10^5 devices with their answers.
const maxCheckpoint = 64 << 20

// maxRegistered is the number of healthy devices of a resource up to which they are in the checkpoint. kubelet reads the name of the resource only.
const maxRegistered = 1 << 12

// noNode is the node of devices that are near to none, in the checkpoint.
const noNode = -1

// load reads the checkpoint. One that cannot be read is kept aside, and the agent starts without it.
func (m *Manager) load() {
	if m.path == "" {
		return
	}
	content, err := safefile.ReadFile(m.path, maxCheckpoint)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var entries []checkpoint.PodDevicesEntry
	var registered map[string][]string
	if err == nil {
		entries, registered, err = checkpoint.Unmarshal(content)
	}
	if err != nil {
		aside := m.path + ".damaged"
		renameErr := os.Rename(m.path, aside)
		m.opts.Logger.Error(errors.Join(err, renameErr), "The checkpoint of the devices cannot be used. Pods that run keep their devices, and other pods may get the same ones: restart pods with devices",
			"path", m.path, "keptAt", aside)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range registered {
		m.restorePool(v1.ResourceName(name))
	}
	for _, e := range entries {
		if err := m.restore(e); err != nil {
			m.opts.Logger.Error(err, "An entry in the checkpoint of the devices cannot be used", "path", m.path,
				"pod", e.PodUID, "container", e.ContainerName, "resource", e.ResourceName)
		}
	}
	m.restored = len(m.pods)
}

func (m *Manager) restorePool(name v1.ResourceName) {
	if p := m.pool(name); p.lost.IsZero() {
		p.lost = time.Now()
	}
}

// restore adds an entry of the checkpoint to the state.
func (m *Manager) restore(e checkpoint.PodDevicesEntry) error {
	if e.PodUID == "" || e.ContainerName == "" || e.ResourceName == "" {
		return errors.New("it has no pod, container or resource")
	}
	edits, err := checkpoint.Decode(e.AllocResp)
	if err != nil {
		return err
	}
	uid, name := types.UID(e.PodUID), v1.ResourceName(e.ResourceName)
	if m.grant(uid, e.ContainerName, name) != nil {
		return errors.New("there is another one for the same container and resource")
	}
	g := &grant{nodes: map[string]numa.Nodes{}, allocated: true, edits: edits, message: e.AllocResp}
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
	m.pods[uid].restored = true
	return nil
}

// entries returns what the checkpoint has. mu is held.
func (m *Manager) entries() (entries []checkpoint.PodDevicesEntry, registered map[string][]string) {
	for uid, pod := range m.pods {
		for container, grants := range pod.grants {
			for name, g := range grants {
				if !g.allocated {
					continue
				}
				devices := checkpoint.DevicesPerNUMA{}
				for _, id := range g.ids {
					if g.nodes[id] == 0 {
						devices[noNode] = append(devices[noNode], id)
					}
					for node := range g.nodes[id].All() {
						devices[int64(node)] = append(devices[int64(node)], id)
					}
				}
				entries = append(entries, checkpoint.PodDevicesEntry{
					PodUID: string(uid), ContainerName: container, ResourceName: string(name), DeviceIDs: devices, AllocResp: g.message,
				})
			}
		}
	}
	slices.SortFunc(entries, func(a, b checkpoint.PodDevicesEntry) int {
		return cmp.Or(cmp.Compare(a.PodUID, b.PodUID), cmp.Compare(a.ContainerName, b.ContainerName), cmp.Compare(a.ResourceName, b.ResourceName))
	})
	registered = map[string][]string{}
	for name, p := range m.pools {
		if p.devices == nil && p.lost.IsZero() { // there has been no provider yet
			continue
		}
		if p.server != nil || time.Since(p.lost) <= LostGrace || len(p.owners) > 0 || len(p.waiting) > 0 {
			registered[string(name)] = append([]string{}, p.healthy[:min(len(p.healthy), maxRegistered)]...)
		}
	}
	return entries, registered
}

// save writes the checkpoint, unless it has the latest version. Callers that come meanwhile share one write.
func (m *Manager) save() error {
	if m.path == "" {
		return nil
	}
	m.mu.Lock()
	wanted := m.version
	m.mu.Unlock()
	m.saving.Lock()
	defer m.saving.Unlock()
	if m.saved >= wanted {
		return nil
	}
	m.mu.Lock()
	version := m.version
	entries, registered := m.entries()
	m.mu.Unlock()
	content, err := checkpoint.Marshal(entries, registered)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(m.path), 0o750)
	}
	if err == nil {
		err = safefile.WriteSync(m.path, content)
	}
	if err != nil {
		return fmt.Errorf("writing the checkpoint of devices: %w", err)
	}
	m.saved = version
	return nil
}

// saveLater writes the checkpoint. If that fails, the next write has it, too: what frees a device does not need a disk.
func (m *Manager) saveLater() {
	if err := m.save(); err != nil {
		m.opts.Logger.Error(err, "The checkpoint of the devices is not up to date; it is written with the next change")
	}
}
