// Package volumetest tests implementations of [volume.Plugin]: that SetUp and
// TearDown are idempotent, and that TearDown works after a restart of the agent, from
// what is on disk, also if the agent ended in any step of SetUp or TearDown, its context did, or the
// disk was full. Root on Linux runs all tests; without root those that mount are skipped.
//
//	func TestConformance(t *testing.T) {
//		volumetest.Suite(t, volumetest.Factory{
//			New:    func(t *testing.T) volume.Plugin { return tarball.New() },
//			Volume: v1.Volume{Name: "data", VolumeSource: …},
//		})
//	}
package volumetest
