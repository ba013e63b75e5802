package cri

import (
	"fmt"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// The statuses of all sandboxes and containers are kept. A runtime can make each of them large
// and return any number, so the index has the weight of each, and bounds their sum.

// maxWeight is the bound in bytes. A status weighs about 1 kB.
const maxWeight = 256 << 20

// errTooMuch means that the statuses of the runtime take too much memory together.
var errTooMuch = fmt.Errorf("the statuses of all sandboxes and containers take more than %d MiB", maxWeight>>20)

// weigh replaces the weight of an item. It returns false, and changes nothing, if the sum would
// be too large. x.mu is held.
func (x *index) weigh(item *int, weight int) bool {
	if sum := x.weight - *item + weight; sum <= maxWeight || weight <= *item {
		x.weight, *item = sum, weight
		return true
	}
	return false
}

// elementWeight is the weight of an element of a list or a map without its texts.
const elementWeight = 64

// weightOfSandbox returns about how much memory a status takes, in bytes.
func weightOfSandbox(s *runtime.SandboxStatus) int {
	n := 256 + len(s.ID) + len(s.RuntimeHandler)
	for _, ip := range s.IPs {
		n += elementWeight + len(ip)
	}
	for _, m := range []map[string]string{s.Labels, s.Annotations} {
		for k, v := range m {
			n += elementWeight + len(k) + len(v)
		}
	}
	return n
}

// weightOfContainer returns about how much memory a status takes, in bytes.
func weightOfContainer(c *runtime.ContainerStatus) int {
	n := 512
	for _, text := range []string{
		c.ID.ID, c.Name, c.SandboxID, c.Image, c.ImageRef, c.ImageID, c.Reason, c.Message, c.LogPath,
	} {
		n += len(text)
	}
	for i := range c.Ports {
		p := &c.Ports[i]
		n += elementWeight + len(p.Name) + len(p.Protocol) + len(p.HostIP)
	}
	for i := range c.Mounts {
		n += elementWeight + len(c.Mounts[i].HostPath) + len(c.Mounts[i].ContainerPath)
	}
	if c.User != nil && c.User.Linux != nil {
		n += 8 * len(c.User.Linux.SupplementalGroups)
	}
	if h := c.PreStop; h != nil && h.Exec != nil {
		for _, arg := range h.Exec.Command {
			n += elementWeight + len(arg)
		}
	}
	if h := c.PreStop; h != nil && h.HTTPGet != nil {
		n += len(h.HTTPGet.Path) + len(h.HTTPGet.Host) + len(h.HTTPGet.Port.StrVal)
		for i := range h.HTTPGet.HTTPHeaders {
			n += elementWeight + len(h.HTTPGet.HTTPHeaders[i].Name) + len(h.HTTPGet.HTTPHeaders[i].Value)
		}
	}
	return n
}
