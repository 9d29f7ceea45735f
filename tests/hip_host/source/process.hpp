// Running the compiler: no shell, output kept.
#pragma once

#include <string>
#include <vector>

namespace hip_host {

struct Outcome {
    int status;         // the exit status, or 127 where the program could not be run
    std::string output; // of both standard output and standard error
};

Outcome run_program(const std::vector<std::string>& command);

// A folder that is gone, with all that is in it, when this is.
class TemporaryFolder {
  public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;

    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

} // namespace hip_host
