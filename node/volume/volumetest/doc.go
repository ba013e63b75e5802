// Package volumetest tests implementations of [volume.Plugin]. SetUp and TearDown must be
// idempotent. TearDown must work after a restart of the agent from the files on disk alone, also if
// the agent or the context ended in any step of SetUp or TearDown, or the disk was full. Root on
// Linux runs all tests; without root, tests that mount are skipped.
//
//	func TestConformance(t *testing.T) {
//		volumetest.Suite(t, volumetest.Factory{
//			New:    func(t *testing.T) volume.Plugin { return tarball.New() },
//			Volume: v1.Volume{Name: "data", VolumeSource: …},
//		})
//	}
//
// [PersistentSuite] is the same for implementations of [volume.PersistentPlugin], by pods with claims of one volume.
package volumetest
