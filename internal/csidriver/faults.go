package csidriver

import (
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Fault is what happens to calls. Several of its fields can be set; they apply in their order.
type Fault struct {
	// Method is the name of the method, such as "NodeStageVolume". Empty: those of all services.
	Method string
	// VolumeID is the volume that the calls are about. Empty: any, or none.
	VolumeID string
	// Times is how many calls have the fault. 0: all, until it is removed.
	Times int

	// Late means that Delay, Hang and Code apply after the work. If the work fails, they do not apply.
	Late bool
	// Delay is how long a call waits, also if its context is done.
	Delay time.Duration
	// Hang means that a call waits until the fault is removed, or the driver ends, also if its context is done.
	Hang bool
	// Code is that of the answer, unless it is OK. Message is its text.
	Code    codes.Code
	Message string
	// Exit ends the driver after the work and before the answer, see [ErrExit].
	Exit bool
	// Answer is the answer in place of that of the work.
	Answer proto.Message
	// Nonsense is an answer that is no message.
	Nonsense bool
}

type fault struct {
	Fault
	id       int
	left     int           // of Times
	released chan struct{} // closed when it is removed
}

// Inject adds a fault. If several faults apply to a call, it has the first. The function that it returns removes the
// fault, and releases the calls that hang by it. It can be called more than once.
func (d *Driver) Inject(f Fault) (remove func()) {
	added := d.inject(f)
	return sync.OnceFunc(func() { d.remove(func(f *fault) bool { return f == added }) })
}

func (d *Driver) inject(f Fault) *fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.injected++
	added := &fault{Fault: f, id: d.injected, left: f.Times, released: make(chan struct{})}
	d.faults = append(d.faults, added)
	return added
}

// Release removes all faults, and releases the calls that hang.
func (d *Driver) Release() { d.remove(func(*fault) bool { return true }) }

func (d *Driver) remove(match func(*fault) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = slices.DeleteFunc(d.faults, func(f *fault) bool {
		if !match(f) {
			return false
		}
		close(f.released)
		return true
	})
}

// fault returns that of a call, or nil.
func (d *Driver) fault(method string, request proto.Message) *fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.faults {
		if f.Method != "" && f.Method != method || f.VolumeID != "" && f.VolumeID != volumeID(request) ||
			f.Times > 0 && f.left == 0 {
			continue
		}
		f.left--
		return f
	}
	return nil
}

// apply waits as the fault says, and returns its error. No call waits longer than the driver runs.
func (d *Driver) apply(f *fault) error {
	if f.Delay > 0 {
		timer := time.NewTimer(f.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-d.stopped:
			return status.Error(codes.Unavailable, "the driver ends")
		}
	}
	if f.Hang {
		select {
		case <-f.released:
		case <-d.stopped:
			return status.Error(codes.Unavailable, "the driver ends")
		}
	}
	if f.Code != codes.OK {
		return status.Error(f.Code, f.Message)
	}
	return nil
}

// end ends the driver as if it were killed.
func (d *Driver) end() {
	select {
	case d.exit <- struct{}{}:
	default: // it ends already
	}
}

// garbage is an answer that is no message.
type garbage struct{}

// garbageCodec is the codec of messages, and of garbage.
type garbageCodec struct{}

func (garbageCodec) Name() string { return protocodec.Name }

func (garbageCodec) Marshal(v any) (mem.BufferSlice, error) {
	if _, ok := v.(garbage); ok {
		return mem.BufferSlice{mem.SliceBuffer("\xff\xff nonsense")}, nil
	}
	return encoding.GetCodecV2(protocodec.Name).Marshal(v)
}

func (garbageCodec) Unmarshal(data mem.BufferSlice, v any) error {
	return encoding.GetCodecV2(protocodec.Name).Unmarshal(data, v)
}
