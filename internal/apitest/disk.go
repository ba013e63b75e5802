package apitest

import (
	"encoding/json"
	"sync"
)

// Disk is a checkpoint in memory. The zero value is empty. It is safe for concurrent use.
type Disk struct {
	mu    sync.Mutex
	state map[string][]byte
}

// KeepState keeps the state, as JSON.
func (d *Disk) KeepState(name string, state any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == nil {
		d.state = map[string][]byte{}
	}
	d.state[name], _ = json.Marshal(state)
}

// LoadState reads what was kept, and reports whether there is anything.
func (d *Disk) LoadState(name string, into any) bool {
	return json.Unmarshal([]byte(d.Kept(name)), into) == nil
}

// Kept returns what was kept, "" if nothing was.
func (d *Disk) Kept(name string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return string(d.state[name])
}
