package node

import (
	"encoding/json"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// patchOf returns the strategic merge patch of the status subresource that leads from one
// node object to the other. It has the metadata and the status, never the spec. Conditions
// that differ are merged by their type, so that the conditions of others are kept.
//
// Addresses are replaced as a whole: the API merges them by type, although a type may occur
// twice.
func patchOf(old, desired *v1.Node) ([]byte, error) {
	fail := func(err error) ([]byte, error) {
		return nil, fmt.Errorf("patch of node %s: %w", old.Name, err)
	}
	target := *desired
	target.Spec = old.Spec
	replace := len(old.Status.Addresses) > 0 && !equality.Semantic.DeepEqual(old.Status.Addresses,
		desired.Status.Addresses)
	if replace {
		target.Status.Addresses = old.Status.Addresses
	}
	from, err := json.Marshal(old)
	if err != nil {
		return fail(err)
	}
	to, err := json.Marshal(&target)
	if err != nil {
		return fail(err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(from, to, v1.Node{})
	if err != nil {
		return fail(err)
	}
	if !replace {
		return patch, nil
	}
	var fields map[string]any
	if err := json.Unmarshal(patch, &fields); err != nil {
		return fail(err)
	}
	status, _ := fields["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
		fields["status"] = status
	}
	addresses := make([]any, 0, len(desired.Status.Addresses)+1)
	for _, a := range desired.Status.Addresses {
		addresses = append(addresses, a)
	}
	status["addresses"] = append(addresses, map[string]string{"$patch": "replace"})
	return json.Marshal(fields)
}
