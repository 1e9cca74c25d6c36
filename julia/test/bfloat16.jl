# SPDX-License-Identifier: Apache-2.0

@testset "bfloat16 rounds to the nearest even" begin
    @test Float32(BFloat16(1.5f0)) === 1.5f0
    for (bits, rounded) in ((0x3f808000, 0x3f80), (0x3f818000, 0x3f82), (0x3f808001, 0x3f81), (0x80000000, 0x8000),
                            (0x7f7fffff, 0x7f80), (0xff800000, 0xff80), (0x00008001, 0x0001))
        @test BFloat16(reinterpret(Float32, bits)).bits == rounded
    end
    @test isnan(Float32(BFloat16(NaN32)))
end
