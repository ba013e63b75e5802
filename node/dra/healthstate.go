package dra

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/node/internal/checkpoint"
)

// healthName is the name of the file in which kubelet keeps the health of devices, in the directory of the state.
const healthName = "dra_health_state"

// healthFile is the file of kubelet 1.36 and 1.37: the devices of each driver, by pool and name.
type healthFile map[string]healthOfDriver

type healthOfDriver struct {
	Devices map[string]healthOfDevice
}

type healthOfDevice struct {
	PoolName, DeviceName string
	Health               v1.ResourceHealthStatus
	LastUpdated          time.Time
	HealthCheckTimeout   time.Duration
	Message              string
}

// restoreHealth reads the reports that an earlier agent has received. They hold until they expire or the driver reports
// again. Without them the health is Unknown, so a file that is damaged is not an error.
func (m *Manager) restoreHealth() error {
	var f healthFile
	err := checkpoint.Read(&m.health.Reader, m.path(healthName), checkpoint.MaxSize,
		func(data []byte) error { return json.Unmarshal(data, &f) })
	if damaged := (*checkpoint.DamagedError)(nil); errors.As(err, &damaged) {
		m.log.Error(err, "The health of devices that an earlier agent has kept cannot be used",
			"path", m.path(healthName))
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the health of devices of dynamic resources: %w", err)
	}
	m.mu.Lock()
	for driver, devices := range f {
		if slices.ContainsFunc(m.drivers[driver], func(e *Endpoint) bool { return e.health != nil }) {
			continue // it has reported meanwhile
		}
		m.earlier[driver] = map[deviceID]reported{}
		for _, d := range devices.Devices {
			if d.HealthCheckTimeout <= 0 {
				d.HealthCheckTimeout = defaultHealthTimeout
			}
			m.earlier[driver][deviceID{d.PoolName, d.DeviceName}] = reported{
				DeviceHealth{Pool: d.PoolName, Name: d.DeviceName, Health: d.Health, Timeout: d.HealthCheckTimeout,
					Message: clip(d.Message)}, d.LastUpdated.Add(d.HealthCheckTimeout),
			}
		}
	}
	m.mu.Unlock()
	m.wake.Notify()
	return nil
}

// healthContent returns the content of the file.
func (m *Manager) healthContent() ([]byte, error) {
	m.mu.Lock()
	f := healthFile{}
	add := func(driver string, health map[deviceID]reported) {
		for id, r := range health {
			if f[driver].Devices == nil {
				f[driver] = healthOfDriver{map[string]healthOfDevice{}}
			}
			f[driver].Devices[id.pool+"/"+id.name] = healthOfDevice{r.Pool, r.Name, r.Health, r.until.Add(-r.Timeout),
				r.Timeout, r.Message}
		}
	}
	for driver, health := range m.earlier {
		add(driver, health)
	}
	for driver, list := range m.drivers {
		for _, e := range list {
			add(driver, e.health)
		}
	}
	m.mu.Unlock()
	return json.Marshal(f)
}

// healthChanged has the file written. mu is held.
func (m *Manager) healthChanged() {
	m.health.Changed()
	m.health.SaveLater()
	m.wake.Notify()
}

// clip cuts a message for people as the API does.
func clip(message string) string {
	if len(message) > v1.ResourceHealthMessageMaxLength {
		return strings.ToValidUTF8(message[:v1.ResourceHealthMessageMaxLength-3], "") + "..."
	}
	return message
}
