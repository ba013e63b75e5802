package stats

import (
	"slices"
	"strconv"
	"strings"
)

// maxDevices is the number of devices whose names are looked up at once.
const maxDevices = 1000

// deviceNames are the names of block devices by their numbers, as in "8:0". Runtimes report the
// numbers with cgroup v2; cAdvisor has the names, by which dashboards choose disks.
type deviceNames struct {
	machine machine
	found   map[string]string
}

func newDeviceNames(m machine) *deviceNames {
	return &deviceNames{machine: m, found: map[string]string{}}
}

// of returns the name of a device, as in "/dev/sda". It returns what is no number of a device of this
// machine as it is.
func (d *deviceNames) of(device string) string {
	if !isDeviceNumber(device) {
		return device
	}
	name, ok := d.found[device]
	if !ok && len(d.found) < maxDevices {
		for line := range strings.Lines(d.machine.file("../sys/dev/block/" + device + "/uevent")) {
			if rest, ok := strings.CutPrefix(line, "DEVNAME="); ok {
				name = "/dev/" + strings.TrimSpace(rest)
			}
		}
		d.found[device] = name
	}
	if name == "" {
		return device
	}
	return name
}

// replace returns the values of labels with the name of the device.
func (d *deviceNames) replace(labels, values []string) []string {
	i := slices.Index(labels, "device")
	if i < 0 {
		return values
	}
	name := d.of(values[i])
	if name == values[i] {
		return values
	}
	out := slices.Clone(values) // they are the runtime's
	out[i] = name
	return out
}

// isDeviceNumber reports whether a device is a major and a minor number.
func isDeviceNumber(device string) bool {
	major, minor, _ := strings.Cut(device, ":")
	_, err := strconv.ParseUint(major, 10, 32)
	_, merr := strconv.ParseUint(minor, 10, 32)
	return err == nil && merr == nil
}
