package dra

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// defaultHealthTimeout is how long a report of a device holds if the driver does not say it. It is kubelet's.
const defaultHealthTimeout = 30 * time.Second

// maxReports is the number of devices of one part of a driver whose health is kept. It is kubelet's.
const maxReports = 16384

// DeviceHealth is the health of a device, as a driver reports it.
type DeviceHealth struct {
	// Pool and Name are those of the device in its slice.
	Pool, Name string
	// Health is Healthy, Unhealthy or Unknown.
	Health v1.ResourceHealthStatus
	// Timeout is how long the report holds; 0 means 30 s. Then the health is Unknown.
	Timeout time.Duration
	// Message is for people. It is cut after 1024 bytes.
	Message string
}

type deviceID struct{ pool, name string }

// reported is a report of a device.
type reported struct {
	DeviceHealth
	// until is when the report expires.
	until time.Time
}

// SetHealth takes over a report of the driver. Devices that are not in it keep their health until it expires. The
// statuses of the pods whose devices have changed are generated again. The health of 16384 devices is kept; further
// ones are ignored and logged.
func (e *Endpoint) SetHealth(devices []DeviceHealth) {
	now := time.Now()
	changed, ignored := map[deviceID]bool{}, 0
	e.m.mu.Lock()
	if e.removed {
		e.m.mu.Unlock()
		return
	}
	if e.health == nil {
		e.health = map[deviceID]reported{}
	}
	for _, d := range devices {
		id := deviceID{d.Pool, d.Name}
		if d.Timeout <= 0 {
			d.Timeout = defaultHealthTimeout
		}
		d.Message = clip(d.Message)
		if d.Health != v1.ResourceHealthStatusHealthy && d.Health != v1.ResourceHealthStatusUnhealthy {
			d.Health = v1.ResourceHealthStatusUnknown
		}
		old, ok := e.health[id]
		if !ok && len(e.health) >= maxReports {
			ignored++
			continue
		}
		if !ok {
			old = e.m.earlier[e.name][id]
		}
		if old.Health != d.Health || old.Message != d.Message {
			changed[id] = true
		}
		e.health[id] = reported{d, now.Add(d.Timeout)}
		delete(e.m.earlier[e.name], id)
	}
	if len(changed) > 0 {
		e.m.healthChanged()
	}
	pods := e.m.usersOf(e.name, changed)
	e.m.mu.Unlock()
	if ignored > 0 {
		e.m.log.Info("A DRA driver reports the health of too many devices; further ones are ignored",
			"driver", e.name, "ignored", ignored, "kept", maxReports)
	}
	e.m.tell(pods)
	e.m.wake.Notify() // reports expire
}

// ClearHealth forgets what the driver has reported: it reports no more.
func (e *Endpoint) ClearHealth() {
	e.m.mu.Lock()
	changed := map[deviceID]bool{}
	for _, health := range []map[deviceID]reported{e.health, e.m.earlier[e.name]} {
		for id, r := range health {
			changed[id] = r.Health != v1.ResourceHealthStatusUnknown
		}
	}
	e.health = nil
	delete(e.m.earlier, e.name)
	if len(changed) > 0 {
		e.m.healthChanged()
	}
	pods := e.m.usersOf(e.name, changed)
	e.m.mu.Unlock()
	e.m.tell(pods)
}

// expire makes the health of devices Unknown whose reports have expired. It returns the time until the next one
// expires, 0 for never.
func (m *Manager) expire(now time.Time) (next time.Duration) {
	var pods []types.UID
	m.mu.Lock()
	expire := func(driver string, health map[deviceID]reported) {
		changed := map[deviceID]bool{}
		for id, r := range health {
			switch left := r.until.Sub(now); {
			case left <= 0:
				changed[id] = r.Health != v1.ResourceHealthStatusUnknown
				delete(health, id)
			case next == 0 || left < next:
				next = left
			}
		}
		pods = append(pods, m.usersOf(driver, changed)...)
	}
	for name, list := range m.drivers {
		for _, e := range list {
			expire(name, e.health)
		}
	}
	for name, health := range m.earlier {
		expire(name, health)
	}
	m.mu.Unlock()
	m.tell(pods)
	return next
}

// usersOf returns the pods that use one of the devices of a driver. mu is held.
func (m *Manager) usersOf(driver string, devices map[deviceID]bool) (pods []types.UID) {
	if len(devices) == 0 || m.state == nil {
		return nil
	}
	for _, c := range m.state.claims {
		if slices.ContainsFunc(c.Drivers[driver], func(d Device) bool { return devices[deviceID{d.Pool, d.Name}] }) {
			pods = append(pods, c.Pods...)
		}
	}
	slices.Sort(pods)
	return slices.Compact(pods)
}

func (m *Manager) tell(pods []types.UID) {
	for _, pod := range pods {
		m.node.RefreshStatus(pod)
	}
}

// healthOf returns the health of a device. mu is held.
func (m *Manager) healthOf(driver string, d Device, now time.Time) DeviceHealth {
	for _, e := range slices.Backward(m.drivers[driver]) {
		if r, ok := e.health[deviceID{d.Pool, d.Name}]; ok && now.Before(r.until) {
			return r.DeviceHealth
		}
	}
	if r, ok := m.earlier[driver][deviceID{d.Pool, d.Name}]; ok && now.Before(r.until) {
		return r.DeviceHealth
	}
	return DeviceHealth{Pool: d.Pool, Name: d.Name, Health: v1.ResourceHealthStatusUnknown}
}

// ContainerClaim is a claim that a container uses.
type ContainerClaim struct {
	Claim
	// Devices are those that the container uses, sorted by driver.
	Devices []ContainerDevice
}

// ContainerDevice is a device that a container uses.
type ContainerDevice struct {
	Driver string
	Device
}

// ContainerClaims returns the claims that the container uses, with their devices: those of the spec, then those of its
// extended resources. It fails if a claim is not prepared.
func (m *Manager) ContainerClaims(pod *v1.Pod, container *v1.Container) ([]ContainerClaim, error) {
	list, err := uses(pod, container)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	if err := m.load(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []ContainerClaim
	for _, u := range list {
		c, err := m.state.used(pod, u)
		if err != nil {
			return nil, err
		}
		out = append(out, ContainerClaim{Claim: c.Claim, Devices: c.devices(u)})
	}
	return out, nil
}

// AllocatedResources returns the health of the devices of a container, for allocatedResourcesStatus in its status
// (KEP-4680). Claims that are not prepared are left out.
func (m *Manager) AllocatedResources(pod *v1.Pod, container *v1.Container) []v1.ResourceStatus {
	if len(container.Resources.Claims) == 0 {
		return nil
	}
	list, err := uses(pod, container)
	if err != nil || m.load() != nil {
		return nil
	}
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []v1.ResourceStatus
	for _, u := range list {
		c, err := m.state.used(pod, u)
		if err != nil || u.resource == "" {
			continue
		}
		s := v1.ResourceStatus{Name: u.resource}
		seen := map[v1.ResourceID]bool{}
		for _, d := range c.devices(u) {
			h := m.healthOf(d.Driver, d.Device, now)
			r := v1.ResourceHealth{ResourceID: v1.ResourceID(d.Driver + "/" + d.Pool + "/" + d.Name), Health: h.Health}
			if len(d.CDIDevices) > 0 {
				r.ResourceID = v1.ResourceID(d.CDIDevices[0])
			}
			if h.Message != "" {
				r.Message = &h.Message
			}
			if !seen[r.ResourceID] {
				seen[r.ResourceID] = true
				s.Resources = append(s.Resources, r)
			}
		}
		if len(s.Resources) > 0 {
			out = append(out, s)
		}
	}
	slices.SortStableFunc(out, func(a, b v1.ResourceStatus) int { return cmp.Compare(a.Name, b.Name) })
	return slices.CompactFunc(out, func(a, b v1.ResourceStatus) bool { return a.Name == b.Name })
}

// devices returns the devices of a claim for a use, sorted by driver.
func (c *claimState) devices(u use) (list []ContainerDevice) {
	for _, name := range slices.Sorted(maps.Keys(c.Drivers)) {
		for _, d := range c.Drivers[name] {
			if serves(d, u.request) {
				list = append(list, ContainerDevice{name, d})
			}
		}
	}
	return list
}

// EditStatus sets allocatedResourcesStatus of the main containers for the claims of the pod (KEP-4680). It implements
// [lifecycle.StatusEditor].
func (m *Manager) EditStatus(pod *v1.Pod, status *v1.PodStatus) {
	if len(pod.Spec.ResourceClaims) == 0 {
		return
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		list := m.AllocatedResources(pod, c)
		j := slices.IndexFunc(status.ContainerStatuses, func(s v1.ContainerStatus) bool { return s.Name == c.Name })
		if j < 0 {
			continue
		}
		var kept []v1.ResourceStatus
		for _, r := range status.ContainerStatuses[j].AllocatedResourcesStatus {
			if !strings.HasPrefix(string(r.Name), "claim:") {
				kept = append(kept, r)
			}
		}
		status.ContainerStatuses[j].AllocatedResourcesStatus = append(kept, list...)
	}
}
