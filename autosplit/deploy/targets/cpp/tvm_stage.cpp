// Stages in TVM's virtual machine.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/base.h>

#include "stage.hpp"

namespace autosplit {
namespace {

namespace ffi = tvm::ffi;
constexpr DLDevice CPU{kDLCPU, 0};
constexpr int POOLED = 2;                 // memory::AllocatorType::kPooled
constexpr int ONE_CORE_PER_THREAD = -2;   // ThreadGroup::AffinityMode

// Lends the memory of a tensor to TVM.
struct Lent {
  void AllocData(DLTensor* tensor) { tensor->data = owner.get(); }
  void FreeData(DLTensor*) {}
  Tensor owner;
};

ffi::Function function(const ffi::Module& module, const char* name) {
  ffi::Optional<ffi::Function> found = module->GetFunction(name);
  if (!found.has_value()) throw Error(BAD_INPUT, "the library has no ", name);
  return found.value();
}

class TvmStage : public Stage {
 public:
  TvmStage(const StageSpec& spec, const Replica& replica)
      : inputs_(spec.inputs), outputs_(spec.outputs), cores_(replica.cores) {
    const ffi::Module library = ffi::Module::LoadFromFile(replica.file);
    machine_ = function(library, "vm_load_executable")().cast<ffi::Module>();
    const int cpu = kDLCPU;
    function(machine_.value(), "vm_initialization")(cpu, 0, POOLED, cpu, 0, POOLED);
    main_ = function(machine_.value(), "main");
    for (const Port& port : inputs_) dtypes_.push_back(ffi::StringToDLDataType(port.dtype));
  }

  // Each thread has a pool of kernel threads of its own.
  void open() override {
    ffi::Array<ffi::String> names;
    for (int core : cores_) names.push_back(std::to_string(core));
    const int threads = static_cast<int>(cores_.size());
    ffi::Function::GetGlobalRequired("runtime.config_threadpool")(ONE_CORE_PER_THREAD, threads,
                                                                  names);
  }

  Tensors run(const Tensors& inputs) override {
    std::vector<ffi::Any> arguments;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const ffi::ShapeView shape(inputs_[i].shape.data(), inputs_[i].shape.size());
      arguments.emplace_back(
          ffi::Tensor::FromNDAlloc(Lent{aligned(inputs[i], inputs_[i].bytes)}, shape, dtypes_[i],
                                   CPU));
    }
    const std::vector<ffi::AnyView> views(arguments.begin(), arguments.end());
    ffi::Any result;
    main_.CallPacked(views.data(), static_cast<int>(views.size()), &result);
    Tensors outputs;
    for (const ffi::Any& value : result.cast<ffi::Array<ffi::Any>>()) {
      const auto tensor = value.cast<ffi::Tensor>();
      const std::size_t position = outputs.size();
      if (position == outputs_.size() || ffi::GetDataSize(tensor) != outputs_[position].bytes)
        throw Error(BAD_INPUT, "an output has another size than split.json says");
      char* memory = static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset();
      outputs.emplace_back(memory, [tensor](void*) {});
    }
    return outputs;
  }

 private:
  // Memory of other runtimes may not be aligned for the vector loads of TVM's kernels.
  static Tensor aligned(const Tensor& tensor, std::size_t bytes) {
    if (reinterpret_cast<std::uintptr_t>(tensor.get()) % ALIGNMENT == 0) return tensor;
    Tensor copy = allocate(bytes);
    std::memcpy(copy.get(), tensor.get(), bytes);
    return copy;
  }

  const std::vector<Port>&inputs_, &outputs_;
  const std::vector<int> cores_;
  std::vector<DLDataType> dtypes_;
  ffi::Optional<ffi::Module> machine_;
  ffi::Function main_;
};

}  // namespace

std::unique_ptr<Stage> load_tvm(const StageSpec& spec, const Replica& replica) {
  // With libraries of other versions TVM may crash when it loads a stage.
  TVMFFIVersion ffi_version;
  TVMFFIGetVersion(&ffi_version);
  if (std::string(TVM_VERSION).rfind(spec.version, 0))
    throw Error(BAD_MACHINE, "TVM " TVM_VERSION " does not match the export, which was made with ",
                spec.version, "; build the program with that");
  if (ffi_version.major != TVM_FFI_VERSION_MAJOR || ffi_version.minor != TVM_FFI_VERSION_MINOR ||
      ffi_version.patch != TVM_FFI_VERSION_PATCH)
    throw Error(BAD_MACHINE, "libtvm_ffi is not the version that the program was built with; ",
                "build it again");
  return std::make_unique<TvmStage>(spec, replica);
}

}  // namespace autosplit
