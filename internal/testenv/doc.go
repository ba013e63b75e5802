// Package testenv is what tests need of the machine that they run on.
//
//	func TestMain(m *testing.M) {
//		flag.Parse()
//		testenv.Parallel(8) // the tests wait most of the time
//		goleak.VerifyTestMain(m)
//	}
//
//	func TestManyFiles(t *testing.T) {
//		dir := testenv.MemoryDir(t)
//		...
//	}
//
// Only tests may import it.
package testenv
