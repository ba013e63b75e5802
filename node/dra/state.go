package dra

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
)

// key is the name of a claim.
type key struct{ namespace, name string }

func (c Claim) key() key { return key{c.Namespace, c.Name} }

func compareKeys(a, b key) int {
	return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
}

// ClaimState is what the state has of a claim.
type ClaimState struct {
	Claim
	// Pods are the UIDs of the pods that use the claim, sorted.
	Pods []types.UID
	// Drivers has the devices by driver. Each driver of the claim is there, also without devices.
	Drivers map[string][]Device
	// Skips has the operations that all devices of a driver skip (KEP-5945), sorted; ["*"] are all of them. Drivers
	// without any are not there. It is read-only.
	Skips map[string][]resourceapi.SkipNodeOperation
}

// skipsOperation reports whether a driver whose devices skip these operations is not called for op.
func skipsOperation(skips []resourceapi.SkipNodeOperation, op resourceapi.SkipNodeOperation) bool {
	return slices.Contains(skips, op) || slices.Contains(skips, resourceapi.SkipNodeOperationAll)
}

// state has the claims that are prepared, or may be. Its methods are not safe for concurrent use.
type state struct {
	claims map[key]*claimState
	byPod  map[types.UID]map[key]struct{}
	// changed is called with each change. It must not block.
	changed func()
}

type claimState struct {
	ClaimState
	// prepared means that this process has prepared the claim, and not just read it from the file.
	prepared bool
}

func newState(changed func()) *state {
	return &state{claims: map[key]*claimState{}, byPod: map[types.UID]map[key]struct{}{}, changed: changed}
}

// add has a pod use a claim. drivers are the drivers of the claim, with the operations that their devices skip.
func (s *state) add(claim Claim, drivers map[string][]resourceapi.SkipNodeOperation, pod types.UID) {
	c := s.claims[claim.key()]
	if c == nil {
		c = &claimState{ClaimState: ClaimState{Claim: claim, Drivers: map[string][]Device{}}}
		for name, skips := range drivers {
			c.Drivers[name] = nil
			c.skip(name, skips)
		}
		s.claims[claim.key()] = c
	}
	if i, has := slices.BinarySearch(c.Pods, pod); !has {
		c.Pods = slices.Insert(slices.Clone(c.Pods), i, pod)
	}
	s.index(pod, claim.key())
	s.changed()
}

// skip sets the operations that the devices of a driver skip.
func (c *ClaimState) skip(driver string, skips []resourceapi.SkipNodeOperation) {
	if len(skips) == 0 {
		return
	}
	if c.Skips == nil {
		c.Skips = map[string][]resourceapi.SkipNodeOperation{}
	}
	c.Skips[driver] = skips
}

func (s *state) index(pod types.UID, k key) {
	if s.byPod[pod] == nil {
		s.byPod[pod] = map[key]struct{}{}
	}
	s.byPod[pod][k] = struct{}{}
}

// drop has a pod use a claim no more. The claim is dropped with its last pod.
func (s *state) drop(k key, pod types.UID) {
	if c := s.claims[k]; c != nil {
		if i, has := slices.BinarySearch(c.Pods, pod); has {
			c.Pods = slices.Delete(slices.Clone(c.Pods), i, i+1)
		}
		if len(c.Pods) == 0 {
			delete(s.claims, k)
		}
	}
	delete(s.byPod[pod], k)
	if len(s.byPod[pod]) == 0 {
		delete(s.byPod, pod)
	}
	s.changed()
}

// of returns the claims of a pod, sorted.
func (s *state) of(pod types.UID) []key {
	return slices.SortedFunc(maps.Keys(s.byPod[pod]), compareKeys)
}

// list returns all claims, sorted. What it returns is not changed later.
func (s *state) list() []ClaimState {
	list := make([]ClaimState, 0, len(s.claims))
	for _, k := range slices.SortedFunc(maps.Keys(s.claims), compareKeys) {
		c := s.claims[k].ClaimState
		c.Drivers = maps.Clone(c.Drivers)
		list = append(list, c)
	}
	return list
}

// The types below are the file of kubelet 1.36 and 1.37.

type stateFile struct {
	Data     string
	Checksum uint32
}

type checkpointData struct {
	Kind               string `json:"kind,omitempty"`
	APIVersion         string `json:"apiVersion,omitempty"`
	ClaimInfoStateList []checkpointClaim
}

type checkpointClaim struct {
	ClaimUID    types.UID
	ClaimName   string
	Namespace   string
	PodUIDs     map[types.UID]struct{}
	DriverState map[string]checkpointDriver
}

type checkpointDriver struct {
	Devices            []checkpointDevice
	SkipNodeOperations []resourceapi.SkipNodeOperation `json:"skipNodeOperations,omitempty"` // since 1.37
}

type checkpointDevice struct {
	PoolName     string
	DeviceName   string
	ShareID      *types.UID
	RequestNames []string
	CDIDeviceIDs []string
}

const (
	checkpointKind    = "DRACheckpoint"
	checkpointVersion = "checkpoint.dra.kubelet.k8s.io/v1"
)

// FormatState returns the content of the file dra_manager_state.
func FormatState(claims []ClaimState) []byte {
	data := checkpointData{Kind: checkpointKind, APIVersion: checkpointVersion,
		ClaimInfoStateList: make([]checkpointClaim, 0, len(claims))}
	for _, c := range claims {
		out := checkpointClaim{ClaimUID: c.UID, ClaimName: c.Name, Namespace: c.Namespace,
			PodUIDs: map[types.UID]struct{}{}, DriverState: map[string]checkpointDriver{}}
		for _, pod := range c.Pods {
			out.PodUIDs[pod] = struct{}{}
		}
		for name, devices := range c.Drivers {
			d := checkpointDriver{SkipNodeOperations: c.Skips[name]}
			for _, device := range devices {
				d.Devices = append(d.Devices, checkpointDevice{device.Pool, device.Name, device.ShareID,
					device.Requests, device.CDIDevices})
			}
			out.DriverState[name] = d
		}
		data.ClaimInfoStateList = append(data.ClaimInfoStateList, out)
	}
	text, _ := json.Marshal(data) // it has strings only, which have no error
	file, _ := json.Marshal(stateFile{Data: string(text), Checksum: crc32.ChecksumIEEE(text)})
	return file
}

// ParseState returns the claims in a file dra_manager_state, of kubelet or of this package.
func ParseState(file []byte) ([]ClaimState, error) {
	var c stateFile
	if err := json.Unmarshal(file, &c); err != nil {
		return nil, err
	}
	if sum := crc32.ChecksumIEEE([]byte(c.Data)); sum != c.Checksum {
		return nil, fmt.Errorf("the checksum is %d, and that of the content %d", c.Checksum, sum)
	}
	var data checkpointData
	if err := json.Unmarshal([]byte(c.Data), &data); err != nil {
		return nil, err
	}
	if data.Kind != checkpointKind || data.APIVersion != checkpointVersion {
		return nil, fmt.Errorf("it is a %q of %q, not a %q of %q", data.Kind, data.APIVersion,
			checkpointKind, checkpointVersion)
	}
	seen := map[key]bool{}
	var list []ClaimState
	for _, in := range data.ClaimInfoStateList {
		claim := ClaimState{
			Claim: Claim{in.Namespace, in.ClaimName, in.ClaimUID}, Pods: slices.Sorted(maps.Keys(in.PodUIDs)),
			Drivers: map[string][]Device{},
		}
		if claim.Namespace == "" || claim.Name == "" || claim.UID == "" {
			return nil, errors.New("a claim has no namespace, name or UID")
		}
		if seen[claim.key()] {
			return nil, fmt.Errorf("claim %s/%s is there twice", claim.Namespace, claim.Name)
		}
		seen[claim.key()] = true
		for name, driver := range in.DriverState {
			claim.Drivers[name] = nil
			claim.skip(name, driver.SkipNodeOperations)
			for _, d := range driver.Devices {
				claim.Drivers[name] = append(claim.Drivers[name], Device{d.PoolName, d.DeviceName, d.ShareID,
					d.RequestNames, d.CDIDeviceIDs})
			}
		}
		list = append(list, claim)
	}
	return list, nil
}

// used returns the claim that a container of the pod uses.
func (s *state) used(pod *v1.Pod, u use) (*claimState, error) {
	c := s.claims[key{pod.Namespace, u.name}]
	if c == nil || !slices.Contains(c.Pods, pod.UID) {
		return nil, fmt.Errorf("ResourceClaim %s is not prepared for pod %s", u.name, pod.Name)
	}
	return c, nil
}
