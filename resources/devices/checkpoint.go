package devices

import (
	"cmp"
	"context"
	"encoding/base64"
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

const (
	// maxCheckpoint is the size of the largest checkpoint that is written, in bytes: that of some 10^5 devices with their answers.
	maxCheckpoint = 64 << 20
	// maxRead is that of the largest one that is read. kubelet has no limit.
	maxRead = 4 * maxCheckpoint
	// maxAnswer is the size of the largest answer of a provider for one container. A message of gRPC has 4 MiB.
	maxAnswer = 256 << 10
)

// maxRegistered is the number of healthy devices of a resource up to which they are in the checkpoint. kubelet reads the name of the resource only.
const maxRegistered = 1 << 12

// noNode is the node of devices that are near to none, in the checkpoint.
const noNode = -1

// read reads the checkpoint, unless it was read. After an error it is read again only if again is true. Until then nobody gets devices, and nothing
// is written.
func (m *Manager) read(again bool) error {
	if m.loaded.Load() {
		return nil
	}
	m.loading.Lock()
	defer m.loading.Unlock()
	if m.loaded.Load() || m.unread != nil && !again {
		return m.unread
	}
	first := m.unread == nil
	if m.unread = m.load(); m.unread == nil {
		m.loaded.Store(true)
	} else if first {
		m.opts.Logger.Error(m.unread, "Pods that request extended resources wait until the checkpoint can be read", "path", m.path)
	}
	return m.unread
}

// load reads the checkpoint. The error is that of the disk. Of one whose checksum is wrong, the pods keep their devices, and the answers of the providers are
// not used. One that cannot be decoded is kept aside.
func (m *Manager) load() error {
	var content []byte
	err := os.ErrNotExist
	if m.path != "" {
		content, err = safefile.ReadFile(m.path, maxRead)
	}
	var entries []checkpoint.PodDevicesEntry
	var registered map[string][]string
	wrong := false
	switch {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return fmt.Errorf("reading the checkpoint of devices: %w", err)
	default:
		entries, registered, err = checkpoint.Unmarshal(content)
		wrong = errors.Is(err, checkpoint.ErrChecksum)
		aside := m.path + ".damaged"
		switch {
		case wrong:
			err = errors.Join(err, safefile.Write(aside, content))
			m.opts.Logger.Error(err, "The checkpoint of the devices is damaged, or from a later kubelet. Pods keep their devices, and their providers are asked again before containers are started",
				"path", m.path, "copiedTo", aside)
		case err != nil:
			err = errors.Join(err, os.Rename(m.path, aside))
			m.opts.Logger.Error(err, "The checkpoint of the devices cannot be used. Containers that run keep their devices, and other pods may get the same ones: restart pods with devices",
				"path", m.path, "keptAt", aside)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range registered {
		m.restorePool(v1.ResourceName(name))
	}
	for _, e := range entries {
		if _, ok := m.endedUnread[types.UID(e.PodUID)]; ok {
			m.version++
			continue
		}
		if err := m.restore(e, wrong); err != nil {
			m.opts.Logger.Error(err, "An entry in the checkpoint of the devices cannot be used", "path", m.path,
				"pod", e.PodUID, "container", e.ContainerName, "resource", e.ResourceName)
		}
	}
	m.restored, m.endedUnread = len(m.pods), nil
	if wrong {
		m.version++
	}
	return nil
}

func (m *Manager) restorePool(name v1.ResourceName) {
	if p := m.pool(name); p.lost.IsZero() {
		p.lost = time.Now()
	}
}

// restore adds an entry of the checkpoint to the state. Without its answer, or if that is wrong, the container keeps the devices, and the provider is
// asked again.
func (m *Manager) restore(e checkpoint.PodDevicesEntry, wrong bool) error {
	if e.PodUID == "" || e.ContainerName == "" || e.ResourceName == "" {
		return errors.New("it has no pod, container or resource")
	}
	uid, name := types.UID(e.PodUID), v1.ResourceName(e.ResourceName)
	if m.grant(uid, e.ContainerName, name) != nil {
		return errors.New("there is another one for the same container and resource")
	}
	g := &grant{nodes: map[string]numa.Nodes{}, held: true}
	var err error
	if e.AllocResp != nil && !wrong {
		if g.edits, err = checkpoint.Decode(e.AllocResp); err == nil {
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
	m.pods[uid].restored = true
	return err
}

// entries returns what the checkpoint has. mu is held.
func (m *Manager) entries() (entries []checkpoint.PodDevicesEntry, registered map[string][]string) {
	for uid, pod := range m.pods {
		for container, grants := range pod.grants {
			for name, g := range grants {
				if !g.allocated && !g.held {
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
	if err := m.read(false); err != nil {
		return err
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
	if err == nil && len(content) > maxCheckpoint {
		err = errTooLarge
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(m.path), 0o750)
	}
	if err == nil {
		err = safefile.WriteSync(m.path, content)
	}
	if err == nil {
		err = safefile.SyncDir(filepath.Dir(m.path))
	}
	if err != nil {
		return fmt.Errorf("writing the checkpoint of devices: %w", err)
	}
	m.saved = version
	return nil
}

// saveLater writes the checkpoint. If that fails, Run does: what frees a device does not need a disk.
func (m *Manager) saveLater() {
	if err := m.save(); err != nil {
		m.opts.Logger.Error(err, "The checkpoint of the devices is not up to date; it is written again later")
		m.unsaved.Notify()
	}
}

// saveUnsaved writes the checkpoint again when that has failed, until ctx ends.
func (m *Manager) saveUnsaved(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.unsaved:
		}
		restart.Repeat(ctx, m.save, func(err error, retryIn time.Duration) {
			m.opts.Logger.Error(err, "The checkpoint of the devices is not up to date", "retryIn", retryIn)
		})
	}
}

var errTooLarge = fmt.Errorf("the checkpoint of devices would have more than %d MiB: end pods with devices, or have the provider return less for a container", maxCheckpoint>>20)

// size is the size of what the checkpoint has of the grants, about. mu is held.
func (m *Manager) size() (sum int) {
	for _, pod := range m.pods {
		for _, grants := range pod.grants {
			for _, g := range grants {
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
