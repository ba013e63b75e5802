// Package resourceclaims reads ResourceClaims from an API server, and removes the ResourceSlices of a node, for package
// node/dra.
//
// A node may read the claims of its pods only, one at a time, and remove the slices of its own only: the node
// authorizer refuses everything else. So claims are neither listed nor watched; a claim that cannot be used is read
// again after the back-off of its pod.
package resourceclaims
