//go:build !linux

package host

// Read returns no facts: kubelet sets nothing on other systems than Linux, and refuses nothing.
func Read() Facts { return Facts{} }

// Set does nothing.
func (Plan) Set() error { return nil }
